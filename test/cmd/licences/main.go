// Command licences writes a file with the licences of everything that is linked into bringupd: of the
// modules, of Go's standard library, and of C headers with terms of their own. The file has Debian's
// machine-readable format, because the .deb needs that. Its arguments are the build tags and the
// file. It fails if it does not know a licence, so that somebody decides whether it is acceptable.
//
// With -sbom and an SBOM in CycloneDX's format, it adds the licences from THIRD_PARTY_LICENSES to it.
//
// It must be run in the root of the repository, and reads the module cache.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const program = "./cmd/bringupd"

// head is the beginning of the file.
const head = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: bringupd
Comment: The program contains, besides its own code, the modules below vendor/, and go/, which is the
 standard library and the runtime of Go. make licences has written this file.

Files: *
Copyright: 2026 The developers of bringupd
License: Apache-2.0
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("cannot run: the arguments must be the build tags and a file, or -sbom and a file")
	}
	if args[0] == "-sbom" {
		return completeSBOM(args[1])
	}
	components, err := listComponents(args[0])
	if err != nil {
		return err
	}
	apache, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	stanzas, err := describeAll(components, string(apache))
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], []byte(head+stanzas), 0o644) //nolint:gosec // everyone may read it
}

// component is a module, or Go itself.
type component struct {
	Path  string            // as in the file
	Texts map[string]string // the terms and the notices, by the names of their files
}

// goPackage is a package of the program, as go list describes it.
type goPackage struct {
	Dir            string
	Standard       bool
	Module         *struct{ Path, Dir string }
	HFiles, CFiles []string
}

// listComponents returns what the program consists of, with and without cgo, on all processors for
// which there are packages.
func listComponents(tags string) ([]component, error) {
	byPath := make(map[string]component)
	for _, variant := range []string{"amd64 1", "amd64 0", "arm64 1", "arm64 0"} {
		arch, cgo, _ := strings.Cut(variant, " ")
		list := exec.Command("go", "list", "-deps", "-tags", tags,
			"-json=Dir,Standard,Module,HFiles,CFiles", program)
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED="+cgo)
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("cannot list the packages of %s: %w", program, err)
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p goPackage
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if err := p.addTo(byPath); err != nil {
				return nil, err
			}
		}
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot find Go's own licence: %w", err)
	}
	own := component{"go/*", make(map[string]string)}
	byPath[own.Path] = own
	err = addTexts(own.Texts, strings.TrimSpace(string(goroot)), "")

	var components []component
	for _, path := range slices.Sorted(maps.Keys(byPath)) {
		components = append(components, byPath[path])
	}
	return components, err
}

// addTo adds the texts that apply to the package, from its directory up to the root of its module.
func (p goPackage) addTo(byPath map[string]component) error {
	if p.Standard || p.Module == nil || strings.HasPrefix(p.Module.Path, "github.com/bringupd/") {
		return nil
	}
	path := "vendor/" + p.Module.Path + "/*"
	if _, ok := byPath[path]; !ok {
		byPath[path] = component{path, make(map[string]string)}
	}
	texts := byPath[path].Texts
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		inner, err := filepath.Rel(p.Module.Dir, dir)
		if err != nil {
			return err
		}
		if err := addTexts(texts, dir, strings.TrimPrefix(inner, ".")); err != nil {
			return err
		}
		if inner == "." {
			break
		}
	}
	for _, name := range slices.Concat(p.HFiles, p.CFiles) {
		content, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		if terms := headerTerms.Find(content); terms != nil {
			texts[name] = commentFrame.ReplaceAllString(string(terms), "")
		}
	}
	return nil
}

var (
	// headerTerms matches a comment in a C file that says who may use it.
	headerTerms = regexp.MustCompile(`/\*[^/]*Copyright(?s:.*?)\*/`)
	// commentFrame matches what makes a text a comment of C.
	commentFrame = regexp.MustCompile(`(?m)^ *(/\*+|\*+/|\*+) ?`)
	// legalName matches names of files with terms and notices.
	legalName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)
)

// addTexts adds the files with terms and notices in a directory of a module.
func addTexts(texts map[string]string, dir, inner string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !legalName.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		texts[filepath.Join(inner, entry.Name())] = string(content)
	}
	return err
}

// describeAll returns a paragraph for each set of components with the same terms, and one with the text
// of the licence of bringupd itself. It fails if it does not know the terms of a component.
func describeAll(components []component, apache string) (string, error) {
	var order []string // the paragraphs without their first lines
	files := make(map[string][]string)
	for _, c := range components {
		terms, err := c.describe(apache)
		if err != nil {
			return "", err
		}
		if files[terms] == nil {
			order = append(order, terms)
		}
		files[terms] = append(files[terms], c.Path)
	}
	var out strings.Builder
	for _, terms := range order {
		fmt.Fprintf(&out, "\nFiles: %s\n%s", strings.Join(files[terms], "\n "), terms)
	}
	fmt.Fprintf(&out, "\nLicense: Apache-2.0\n%s", indent(apache))
	return out.String(), nil
}

// copyrightLine matches a line with a holder of copyright, but not the template in Apache's licence.
var copyrightLine = regexp.MustCompile(
	`(?m)^\W*(?:Portions )?Copyright +((?:\([cC]\)|©) .+|(?:\d{4}|[A-Z]).*)$`)

// markOfCopyright matches what the name of the field says already.
var markOfCopyright = regexp.MustCompile(`^(\([cC]\)|©) *`)

// describe returns the fields after Files of the component's paragraph.
func (c component) describe(apache string) (string, error) {
	var ids, holders []string
	var terms, comment strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Texts)) {
		text := c.Texts[name]
		for _, found := range copyrightLine.FindAllStringSubmatch(text, -1) {
			holder := strings.TrimSpace(markOfCopyright.ReplaceAllString(found[1], ""))
			if !slices.Contains(holders, holder) {
				holders = append(holders, holder)
			}
		}
		base := strings.ToUpper(filepath.Base(name))
		if strings.HasPrefix(base, "NOTICE") || strings.HasPrefix(base, "PATENTS") {
			fmt.Fprintf(&comment, "%s\n%s", name, indent(text))
			continue
		}
		id := identify(text)
		if id == "" {
			return "", fmt.Errorf("cannot identify the licence of %s: %s has none of the known texts, "+
				"which test/cmd/licences lists", c.Path, name)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		if id != "Apache-2.0" || !sameTerms(text, apache) {
			terms.WriteString(indent(text))
		}
	}
	if len(ids) == 0 {
		return "", fmt.Errorf("cannot find the licence of %s: it has no file such as LICENSE", c.Path)
	}
	if len(holders) == 0 {
		holders = []string{"The authors of the module"}
	}
	fields := fmt.Sprintf("Copyright: %s\nLicense: %s\n%s", strings.Join(holders, "\n "),
		strings.Join(ids, " and "), &terms)
	if comment.Len() > 0 {
		fields += "Comment: " + comment.String()
	}
	return fields, nil
}

// identify returns the SPDX expression of the licences in a text, or "" if it has no known one.
func identify(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	var ids []string
	for _, known := range []struct{ id, with, without string }{
		{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy", ""},
		{"BSD-2-Clause", "Redistributions in binary form must reproduce", "Neither the name"},
		{"BSD-3-Clause", "Neither the name", ""},
		{"Apache-2.0", "Apache License, Version 2.0", ""},
		{"Apache-2.0", "Apache License Version 2.0, January 2004", "Apache License, Version 2.0"},
		{"LicenseRef-NVIDIA-header", "This source code is subject to NVIDIA ownership rights", ""},
	} {
		if strings.Contains(text, known.with) && (known.without == "" || !strings.Contains(text, known.without)) {
			ids = append(ids, known.id)
		}
	}
	return strings.Join(ids, " and ")
}

// sameTerms reports whether two texts differ only in what follows the terms, which says how to apply
// the licence, and in spaces.
func sameTerms(a, b string) bool {
	terms := func(text string) string {
		text, _, _ = strings.Cut(text, "END OF TERMS AND CONDITIONS")
		return strings.Join(strings.Fields(text), " ")
	}
	return terms(a) == terms(b)
}

// indent returns a text as the following lines of a field.
func indent(text string) string {
	var out strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		if line = strings.TrimRight(line, " \t\r\n"); line == "" {
			line = "."
		}
		fmt.Fprintf(&out, " %s\n", line)
	}
	return out.String()
}
