package inventory

import (
	"path/filepath"
	"strings"

	"bookend/internal/gpu"
)

// libraryFolders are where distributions and NVIDIA's installer put it.
var libraryFolders = []string{
	"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
}

// Installed are the paths at which a library of the driver lies where it is installed, the likeliest first.
func Installed(soname string) []string {
	var paths []string
	for _, folder := range libraryFolders {
		paths = append(paths, filepath.Join(folder, soname))
	}
	return paths
}

// LibraryVersion is the version of the driver's library at path, or where path is empty of the one that is installed,
// by the name of its real file. Empty where that does not tell. Nothing is opened.
func LibraryVersion(path string) string {
	candidates := []string{path}
	if path == "" {
		candidates = Installed(gpu.NVIDIA.Library)
	}
	for _, c := range candidates {
		// Threat: none, the name is only compared and shown; whoever loads the library checks who may write it.
		file, err := filepath.EvalSymlinks(c)
		if err != nil {
			continue
		}
		_, version, _ := strings.Cut(filepath.Base(file), ".so.")
		if isVersion(version) {
			return version
		}
		return ""
	}
	return ""
}

// isVersion reports the form of a driver's version: two or three numbers with dots between them.
func isVersion(s string) bool {
	parts := strings.Split(s, ".")
	for _, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return len(parts) == 2 || len(parts) == 3
}
