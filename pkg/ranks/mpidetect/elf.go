package mpidetect

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
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
	values := dynamicTexts(f) // none if it is linked statically
	o.needed = values[elf.DT_NEEDED]
	if names := values[elf.DT_SONAME]; len(names) > 0 {
		o.soname = names[0]
	}
	o.rpath, o.runpath = o.searchDirs(values[elf.DT_RPATH]), o.searchDirs(values[elf.DT_RUNPATH])
	return o, nil
}

// dynamicTexts returns the texts in the dynamic section by their tags, in one read of the section.
func dynamicTexts(f *elf.File) map[elf.DynTag][]string {
	section := f.SectionByType(elf.SHT_DYNAMIC)
	if section == nil || int(section.Link) >= len(f.Sections) {
		return nil
	}
	entries, err := section.Data()
	texts, textsErr := f.Sections[section.Link].Data()
	if err != nil || textsErr != nil {
		return nil
	}
	values := make(map[elf.DynTag][]string)
	size := 16
	if f.Class == elf.ELFCLASS32 {
		size = 8
	}
	for ; len(entries) >= size; entries = entries[size:] {
		var tag, value uint64
		if f.Class == elf.ELFCLASS32 {
			tag, value = uint64(f.ByteOrder.Uint32(entries)), uint64(f.ByteOrder.Uint32(entries[4:]))
		} else {
			tag, value = f.ByteOrder.Uint64(entries), f.ByteOrder.Uint64(entries[8:])
		}
		switch tag := elf.DynTag(tag); tag {
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH:
			if value < uint64(len(texts)) {
				values[tag] = append(values[tag], stringAt(texts, uint32(value)))
			}
		}
	}
	return values
}

// symbolTable is the table of the dynamic symbols of a file. Its names are not converted to strings
// before they are needed, because libraries have thousands of them.
type symbolTable struct {
	file           *elf.File
	entries, texts []byte
}

// symbol is an entry of a [symbolTable].
type symbol struct {
	name    []byte
	info    byte
	section elf.SectionIndex
	value   uint64
}

// dynamicSymbols reads the dynamic symbols of a file.
func dynamicSymbols(f *elf.File) (t symbolTable, err error) {
	section := f.SectionByType(elf.SHT_DYNSYM)
	if section == nil || int(section.Link) >= len(f.Sections) {
		return t, errors.New("it has no dynamic symbols with names")
	}
	t.file = f
	if t.entries, err = section.Data(); err == nil {
		t.texts, err = f.Sections[section.Link].Data()
	}
	return t, err
}

// all returns an iterator over the symbols.
func (t symbolTable) all() iter.Seq[symbol] {
	return func(yield func(symbol) bool) {
		size := elf.Sym64Size
		if t.file != nil && t.file.Class == elf.ELFCLASS32 {
			size = elf.Sym32Size
		}
		for at := t.entries; len(at) >= size; at = at[size:] {
			order := t.file.ByteOrder
			s := symbol{name: bytesAt(t.texts, order.Uint32(at))}
			if size == elf.Sym32Size {
				s.value, s.info, s.section = uint64(order.Uint32(at[4:])), at[12], elf.SectionIndex(order.Uint16(at[14:]))
			} else {
				s.info, s.section, s.value = at[4], elf.SectionIndex(order.Uint16(at[6:])), order.Uint64(at[8:])
			}
			if !yield(s) {
				return
			}
		}
	}
}

// defines reports whether the file defines a symbol.
func (t symbolTable) defines(name string) bool {
	for s := range t.all() {
		if string(s.name) == name && s.section != elf.SHN_UNDEF {
			return true
		}
	}
	return false
}

// searchDirs returns the directories in values of the dynamic section, with $ORIGIN replaced.
func (o *elfObject) searchDirs(values []string) (dirs []string) {
	if len(values) == 0 {
		return nil
	}
	real, err := filepath.EvalSymlinks(o.path)
	if err != nil {
		real = o.path
	}
	for _, value := range values {
		for dir := range strings.SplitSeq(value, ":") {
			dirs = append(dirs, strings.NewReplacer("$ORIGIN", filepath.Dir(real), "${ORIGIN}", filepath.Dir(real)).Replace(dir))
		}
	}
	return dirs
}

// linker searches libraries in the same way as ld.so. It reads each file once.
type linker struct {
	preloaded   *elfObject   // library that was loaded by its path before; nil if none
	libraryPath []string     // LD_LIBRARY_PATH
	cache       libraryCache // ld.so.cache
	defaultDirs []string     // default directories
	objects     map[string]readObject
}

// readObject is the result of reading an object.
type readObject struct {
	*elfObject
	err error
}

// newLinker returns a linker for programs with the given environment. root is the root directory of
// the system.
func newLinker(root string, environ []string) *linker {
	libraryPath, _ := envlist.Lookup(environ, "LD_LIBRARY_PATH")
	l := &linker{libraryPath: strings.FieldsFunc(libraryPath, func(r rune) bool { return r == ':' || r == ';' }), objects: make(map[string]readObject)}
	// If the cache cannot be read, the default directories remain.
	text, _ := os.ReadFile(filepath.Join(root, "etc/ld.so.cache"))
	l.cache = newLibraryCache(text)
	for _, dir := range []string{"lib64", "usr/lib64", "lib", "usr/lib"} {
		l.defaultDirs = append(l.defaultDirs, filepath.Join(root, dir))
	}
	return l
}

// openObject returns the object in a file.
func (l *linker) openObject(path string) (*elfObject, error) {
	read, known := l.objects[path]
	if !known {
		read.elfObject, read.err = openObject(path)
		l.objects[path] = read
	}
	return read.elfObject, read.err
}

const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48
	cacheEntry  = 24
)

// libraryCache is the content of ld.so.cache, from its magic number on.
type libraryCache []byte

// newLibraryCache returns the libraries in the text of ld.so.cache; none if the text has another
// format.
func newLibraryCache(text []byte) libraryCache {
	if at := bytes.Index(text, []byte(cacheMagic)); at >= 0 && len(text)-at >= cacheHeader {
		return text[at:] // an older format may precede it
	}
	return nil
}

// findPath returns the path of a library; an empty string if the cache does not contain it. If it
// lists several libraries with the same name, the first is used, which the linker prefers.
func (c libraryCache) findPath(name string) string {
	if len(c) == 0 {
		return ""
	}
	entries := c[cacheHeader:]
	for range binary.NativeEndian.Uint32(c[len(cacheMagic):]) {
		if len(entries) < cacheEntry {
			break
		}
		if string(bytesAt(c, binary.NativeEndian.Uint32(entries[4:]))) == name {
			return stringAt(c, binary.NativeEndian.Uint32(entries[8:]))
		}
		entries = entries[cacheEntry:]
	}
	return ""
}

// stringAt returns the zero-terminated string at an offset; an empty string if the offset is out of
// range.
func stringAt(text []byte, at uint32) string { return string(bytesAt(text, at)) }

// bytesAt is like stringAt, without a copy.
func bytesAt(text []byte, at uint32) []byte {
	if int64(at) >= int64(len(text)) {
		return nil
	}
	s, _, _ := bytes.Cut(text[at:], []byte{0})
	return s
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
	if file := existingFile(l.cache.findPath(name)); file != "" {
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
	first, err := l.openObject(path)
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
			if next, err := l.openObject(file); err == nil {
				queue = append(queue, step{next, append(slices.Clone(at.above), at.elfObject)})
			}
		}
	}
	return nil
}
