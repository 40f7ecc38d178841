package mpi

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

// object is a program or a library as the linker sees it.
type object struct {
	path   string
	soname string
	needed []string
	// rpath and runpath are where it has what it needs looked for. The first holds for what that needs in turn, too.
	rpath, runpath []string
}

// openObject reads what the linker would of a file.
func openObject(path string) (*object, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	o := &object{path: path}
	o.needed, _ = f.ImportedLibraries() // one that is linked statically has none
	if names, _ := f.DynString(elf.DT_SONAME); len(names) > 0 {
		o.soname = names[0]
	}
	o.rpath, o.runpath = o.dirs(f, elf.DT_RPATH), o.dirs(f, elf.DT_RUNPATH)
	return o, nil
}

// dirs are those of a tag of its dynamic section.
func (o *object) dirs(f *elf.File, tag elf.DynTag) (dirs []string) {
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

// linker finds libraries as ld.so does.
type linker struct {
	own   *object           // was loaded by its path before; nil: nothing was
	path  []string          // LD_LIBRARY_PATH
	cache map[string]string // by soname
	dirs  []string          // without being told of them
}

// newLinker returns the linker of programs with an environment on the machine whose / is root.
func newLinker(root string, environ []string) *linker {
	libraryPath, _ := process.LookupEnv(environ, "LD_LIBRARY_PATH")
	l := &linker{path: strings.FieldsFunc(libraryPath, func(r rune) bool { return r == ':' || r == ';' })}
	text, _ := os.ReadFile(filepath.Join(root, "etc/ld.so.cache")) // without it the usual directories are left
	l.cache = parseCache(text)
	for _, dir := range []string{"lib64", "usr/lib64", "lib", "usr/lib"} {
		l.dirs = append(l.dirs, filepath.Join(root, dir))
	}
	return l
}

const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48
	cacheEntry  = 24
)

// parseCache reads ld.so.cache: of several libraries of one name the first, which is the one that the linker prefers.
func parseCache(text []byte) map[string]string {
	cache := make(map[string]string)
	if at := bytes.Index(text, []byte(cacheMagic)); at >= 0 {
		text = text[at:] // an old form may come before it
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

func stringAt(text []byte, at uint32) string {
	if int64(at) >= int64(len(text)) {
		return ""
	}
	s, _, _ := bytes.Cut(text[at:], []byte{0})
	return string(s)
}

// find returns the file of a library that an object needs, which was loaded by those above it; empty: there is none.
func (l *linker) find(name string, by *object, above []*object) string {
	if l.own != nil && l.own.soname == name {
		return l.own.path
	}
	if strings.Contains(name, "/") {
		return isThere(name)
	}
	var dirs []string
	if by != nil && len(by.runpath) == 0 {
		for _, o := range append([]*object{by}, above...) {
			dirs = append(dirs, o.rpath...)
		}
	}
	dirs = append(dirs, l.path...)
	if by != nil {
		dirs = append(dirs, by.runpath...)
	}
	if file := inDirs(dirs, name); file != "" {
		return file
	}
	if file := isThere(l.cache[name]); file != "" {
		return file
	}
	return inDirs(l.dirs, name)
}

func inDirs(dirs []string, name string) string {
	for _, dir := range dirs {
		if file := isThere(filepath.Join(dir, name)); file != "" {
			return file
		}
	}
	return ""
}

// isThere returns the path of a file, or nothing where there is none.
func isThere(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// mostObjects is of more libraries than any program has.
const mostObjects = 1000

// load goes through all that a file needs, in the order in which the linker loads it, until see returns false. What can't be found has no
// file; what can't be read is passed over.
func (l *linker) load(path string, see func(name, file string) bool) error {
	first, err := openObject(path)
	if err != nil {
		return err
	}
	type step struct {
		*object
		above []*object
	}
	queue, seen := []step{{first, nil}}, make(map[string]bool)
	for len(queue) > 0 && len(seen) < mostObjects {
		at := queue[0]
		queue = queue[1:]
		for _, name := range at.needed {
			if seen[name] {
				continue
			}
			seen[name] = true
			file := l.find(name, at.object, at.above)
			if !see(name, file) {
				return nil
			}
			if next, err := openObject(file); err == nil {
				queue = append(queue, step{next, append(slices.Clone(at.above), at.object)})
			}
		}
	}
	return nil
}
