package mpidetect

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// elfObject is a program or library, with the information that the dynamic linker uses.
type elfObject struct {
	path   string
	soname string
	needed []string
	// rpath and runpath are its search directories for libraries that it needs. rpath also applies to
	// the libraries that those need in turn.
	rpath, runpath []string
}

// openObject reads an ELF file.
func openObject(path string) (*elfObject, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &elfObject{path: path}
	o.needed, _ = f.ImportedLibraries() // none if it is linked statically
	if names, _ := f.DynString(elf.DT_SONAME); len(names) > 0 {
		o.soname = names[0]
	}
	o.rpath, o.runpath = o.searchDirs(f, elf.DT_RPATH), o.searchDirs(f, elf.DT_RUNPATH)
	return o, nil
}

// searchDirs returns the directories in a tag of the dynamic section, with $ORIGIN replaced.
func (o *elfObject) searchDirs(f *elf.File, tag elf.DynTag) (dirs []string) {
	real, err := filepath.EvalSymlinks(o.path)
	if err != nil {
		real = o.path
	}
	values, _ := f.DynString(tag)
	for _, value := range values {
		for dir := range strings.SplitSeq(value, ":") {
			dirs = append(dirs, strings.NewReplacer("$ORIGIN", filepath.Dir(real), "${ORIGIN}", filepath.Dir(real)).Replace(dir))
		}
	}
	return dirs
}

// linker searches libraries in the same way as ld.so.
type linker struct {
	preloaded   *elfObject        // library that was loaded by its path before; nil if none
	libraryPath []string          // LD_LIBRARY_PATH
	cache       map[string]string // paths of ld.so.cache, by soname
	defaultDirs []string          // default directories
}

// newLinker returns a linker for programs with the given environment. root is the root directory of
// the system.
func newLinker(root string, environ []string) *linker {
	libraryPath, _ := process.LookupEnv(environ, "LD_LIBRARY_PATH")
	l := &linker{libraryPath: strings.FieldsFunc(libraryPath, func(r rune) bool { return r == ':' || r == ';' })}
	// If the cache cannot be read, the default directories remain.
	text, _ := os.ReadFile(filepath.Join(root, "etc/ld.so.cache"))
	l.cache = parseCache(text)
	for _, dir := range []string{"lib64", "usr/lib64", "lib", "usr/lib"} {
		l.defaultDirs = append(l.defaultDirs, filepath.Join(root, dir))
	}
	return l
}

const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48
	cacheEntry  = 24
)

// parseCache parses ld.so.cache. If it lists several libraries with the same name, the first is
// used, which the linker prefers.
func parseCache(text []byte) map[string]string {
	cache := make(map[string]string)
	if at := bytes.Index(text, []byte(cacheMagic)); at >= 0 {
		text = text[at:] // an older format may precede it
	}
	if len(text) < cacheHeader || !bytes.HasPrefix(text, []byte(cacheMagic)) {
		return cache
	}
	count := int(binary.NativeEndian.Uint32(text[len(cacheMagic):]))
	for i := range count {
		at := cacheHeader + i*cacheEntry
		if at+cacheEntry > len(text) {
			break
		}
		name := stringAt(text, binary.NativeEndian.Uint32(text[at+4:]))
		if _, known := cache[name]; !known && name != "" {
			cache[name] = stringAt(text, binary.NativeEndian.Uint32(text[at+8:]))
		}
	}
	return cache
}

// stringAt returns the zero-terminated string at an offset; an empty string if the offset is out of
// range.
func stringAt(text []byte, at uint32) string {
	if int64(at) >= int64(len(text)) {
		return ""
	}
	s, _, _ := bytes.Cut(text[at:], []byte{0})
	return string(s)
}

// findLibrary returns the path of a library that the object by needs; an empty string if it is not
// found. above are the objects through which by was loaded, the nearest last.
func (l *linker) findLibrary(name string, by *elfObject, above []*elfObject) string {
	if l.preloaded != nil && l.preloaded.soname == name {
		return l.preloaded.path
	}
	if strings.Contains(name, "/") {
		return existingFile(name)
	}
	// The order of ld.so: rpath (unless there is a runpath), LD_LIBRARY_PATH, runpath, cache, default
	// directories.
	var dirs []string
	if by != nil && len(by.runpath) == 0 {
		for _, o := range append([]*elfObject{by}, above...) {
			dirs = append(dirs, o.rpath...)
		}
	}
	dirs = append(dirs, l.libraryPath...)
	if by != nil {
		dirs = append(dirs, by.runpath...)
	}
	if file := findInDirs(dirs, name); file != "" {
		return file
	}
	if file := existingFile(l.cache[name]); file != "" {
		return file
	}
	return findInDirs(l.defaultDirs, name)
}

// findInDirs returns the path of the first file with this name in the directories; an empty string
// if there is none.
func findInDirs(dirs []string, name string) string {
	for _, dir := range dirs {
		if file := existingFile(filepath.Join(dir, name)); file != "" {
			return file
		}
	}
	return ""
}

// existingFile returns path if it is a regular file, and an empty string otherwise.
func existingFile(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// maxObjects limits the number of libraries; no program has that many.
const maxObjects = 1000

// walkLibraries calls see for all libraries that a file needs, directly or indirectly, in the
// linker's load order, until see returns false. file is empty if the library is not found.
// Libraries that cannot be read are not followed.
func (l *linker) walkLibraries(path string, see func(name, file string) bool) error {
	first, err := openObject(path)
	if err != nil {
		return err
	}
	type step struct {
		*elfObject
		above []*elfObject
	}
	queue, seen := []step{{first, nil}}, make(map[string]bool)
	for len(queue) > 0 && len(seen) < maxObjects {
		at := queue[0]
		queue = queue[1:]
		for _, name := range at.needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			file := l.findLibrary(name, at.elfObject, at.above)
			if !see(name, file) {
				return nil
			}
			if next, err := openObject(file); err == nil {
				queue = append(queue, step{next, append(slices.Clone(at.above), at.elfObject)})
			}
		}
	}
	return nil
}
