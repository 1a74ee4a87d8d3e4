package main

import "bookend/test/mutant"

// guard is one of the things that keep a hook from harm, and what is left without it.
type guard struct {
	mutant.Mutant
	lane lane // of the runs that come past it
}

// guards are taken away one at a time: the torture must see the harm that each of them prevents.
var guards = []guard{
	{mutant.Mutant{
		Name: "uid change", File: "internal/asuser/become.go",
		Old: "func Become(uid, gid uint32, groups []uint32) error {\n",
		New: "func Become(uid, gid uint32, groups []uint32) error {\n\tif true {\n\t\treturn nil\n\t}\n",
	}, onlyChild},
	{mutant.Mutant{
		Name: "not dumpable", File: "internal/asuser/become.go",
		Old: "\t\treturn fmt.Errorf(\"become user %d: %w\", uid, err)\n\t}\n\treturn nil\n",
		New: "\t\treturn fmt.Errorf(\"become user %d: %w\", uid, err)\n\t}\n\treturn unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)\n",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: O_NOFOLLOW", File: "internal/joblog/append.go",
		Old: "const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK", New: "const flags = unix.O_NONBLOCK",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: link count", File: "internal/joblog/append.go",
		Old: "case st.Nlink != 1:", New: "case st.Nlink < 1:",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: owner", File: "internal/joblog/append.go",
		Old: "case st.Uid != uid:", New: "case st.Uid != uid && false:",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: regular file", File: "internal/joblog/append.go",
		Old: "case st.Mode&unix.S_IFMT != unix.S_IFREG:", New: "case false:",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: device and inode", File: "internal/joblog/append.go",
		Old: "case t.Ino != 0 && (t.Ino != st.Ino || t.Dev != st.Dev):", New: "case false:",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: no O_CREAT", File: "internal/joblog/append.go",
		Old: "unix.Open(path, access|flags, 0)", New: "unix.Open(path, access|flags|unix.O_CREAT, 0o600)",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: O_APPEND", File: "internal/joblog/append.go",
		Old: "unix.O_WRONLY|unix.O_APPEND", New: "unix.O_WRONLY",
	}, onlyChild},
	{mutant.Mutant{
		Name: "output: checked by descriptor", File: "internal/joblog/append.go",
		Old: "unix.Fstat(int(f.Fd()), &st)", New: "unix.Stat(f.Name(), &st)",
	}, onlyChild},
	{mutant.Mutant{
		Name: "drop: O_NOFOLLOW", File: "internal/safefile/safefile.go",
		Old: "flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC", New: "flags |= unix.O_CLOEXEC",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: owner", File: "internal/safefile/read.go",
		Old: "st.Nlink != 1 || st.Uid != uid {", New: "st.Nlink != 1 {",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: folder's owner", File: "internal/safefile/read.go",
		Old: "unix.S_IFDIR || st.Uid != uid && st.Uid != 0 {", New: "unix.S_IFDIR {",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: link count", File: "internal/safefile/read.go",
		Old: "st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || st.Uid", New: "st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: regular file", File: "internal/safefile/read.go",
		Old: "if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink", New: "if st.Nlink",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: mount", File: "internal/safefile/read.go",
		Old: "\terr = sameMount(dirfd, fd)\n", New: "",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: size cap", File: "internal/safefile/safefile.go",
		Old: "io.ReadAll(io.LimitReader(f, limit+1))", New: "io.ReadAll(f)",
	}, onlyWhole},
	{mutant.Mutant{
		Name: "drop: opened by what was checked", File: "internal/safefile/read.go",
		Old: "\treturn readPinned(fd, limit)\n",
		New: "\tagain, err := openAt(dirfd, name, unix.O_RDONLY, 0)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\tdefer unix.Close(again)\n\treturn readPinned(again, limit)\n",
	}, onlyWhole},
}
