package main

import "bookend/test/mutant"

// guard is one of the things that keep a hook from harm, and what is left without it.
type guard struct {
	mutant.Mutant
	lane lane // of the runs that come past it
}

// The files that guards are in.
const (
	become  = "internal/child/become.go"
	output  = "internal/joblog/append.go"
	opening = "internal/safefile/safefile.go"
	reading = "internal/safefile/read.go"
)

func inChild(name, file, old, change string) guard {
	return guard{mutant.Mutant{Name: name, File: file, Old: old, New: change}, onlyChild}
}

func inWhole(name, file, old, change string) guard {
	return guard{mutant.Mutant{Name: name, File: file, Old: old, New: change}, onlyWhole}
}

// guards are taken away one at a time: the torture must see the harm that each of them prevents.
var guards = []guard{
	inChild("uid change", become, "func Become(uid, gid uint32, groups []uint32) error {\n",
		"func Become(uid, gid uint32, groups []uint32) error {\n\tif true {\n\t\treturn nil\n\t}\n"),
	inChild("not dumpable", become, "become user %d: %w\", uid, err)\n\t}\n\treturn nil\n",
		"become user %d: %w\", uid, err)\n\t}\n\treturn unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)\n"),
	inChild("output: O_NOFOLLOW", output, "const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK",
		"const flags = unix.O_NONBLOCK"),
	inChild("output: link count", output, "case st.Nlink != 1:", "case st.Nlink < 1:"),
	inChild("output: owner", output, "case st.Uid != uid:", "case st.Uid != uid && false:"),
	inChild("output: regular file", output, "case st.Mode&unix.S_IFMT != unix.S_IFREG:", "case false:"),
	inChild("output: device and inode", output, "case t.Ino != 0 && (t.Ino != st.Ino || t.Dev != st.Dev):",
		"case false:"),
	inChild("output: no O_CREAT", output, "unix.Open(t.Path, access|flags, 0)",
		"unix.Open(t.Path, access|flags|unix.O_CREAT, 0o600)"),
	inChild("output: O_APPEND", output, "unix.O_WRONLY|unix.O_APPEND", "unix.O_WRONLY"),
	inChild("output: checked by descriptor", output, "unix.Fstat(fd, &st)", "unix.Stat(t.Path, &st)"),
	inWhole("drop: O_NOFOLLOW", opening, "flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC", "flags |= unix.O_CLOEXEC"),
	inWhole("drop: owner", reading, "st.Nlink != 1 || st.Uid != uid {", "st.Nlink != 1 {"),
	inWhole("drop: link count", reading, "st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Uid",
		"st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid"),
	inWhole("drop: regular file", reading, "if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink", "if st.Nlink"),
	inWhole("drop: mount", reading, "\terr = sameMount(dirfd, fd)\n", ""),
	inWhole("drop: size cap", opening, "io.ReadAll(io.LimitReader(f, limit+1))", "io.ReadAll(f)"),
	inWhole("drop: opened by what was checked", reading, "\t\tcontent, err = readPinned(fd, limit)\n",
		`		again, err := openAt(dirfd, name, unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(again)
		content, err = readPinned(again, limit)
`),
}
