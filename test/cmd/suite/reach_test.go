package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// byHand lists tests that no part runs. TestShoot takes pictures of pages whose names are given by
// flag.
var byHand = []string{"TestShoot"}

// selection is the set of tests that one go test command of a part runs.
type selection struct {
	tags     []string
	tests    *regexp.Regexp
	packages []string
}

var (
	tagsFlag    = regexp.MustCompile(`-tags (\S+)`)
	runFlag     = regexp.MustCompile(`-run '?([^' ]+)`)
	packageArgs = regexp.MustCompile(`\./\S+`)
	buildLine   = regexp.MustCompile(`(?m)^//go:build (.*)$`)
	testFunc    = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T`)
	tagName     = regexp.MustCompile(`\w+`)
)

// selections returns the tests that the parts run.
func selections() (all []selection) {
	for _, p := range allParts {
		for command := range strings.SplitSeq(p.command, "&&") {
			s := selection{tests: regexp.MustCompile(""),
				packages: packageArgs.FindAllString(command, -1)}
			if tags := tagsFlag.FindStringSubmatch(command); tags != nil {
				s.tags = strings.Split(tags[1], ",")
			}
			if run := runFlag.FindStringSubmatch(command); run != nil {
				name, _, _ := strings.Cut(run[1], "$/") // subtests are irrelevant here
				s.tests = regexp.MustCompile(name)
			}
			all = append(all, s)
		}
	}
	return all
}

// runs reports whether the selection includes a test of a folder that is built with these tags.
func (s selection) runs(folder, test string, tags []string) bool {
	for _, tag := range tags {
		if !slices.Contains(s.tags, tag) {
			return false
		}
	}
	return s.tests.MatchString(test) && slices.ContainsFunc(s.packages, func(p string) bool {
		parent, below := strings.CutSuffix(p, "/...")
		return p == folder || below && strings.HasPrefix(folder+"/", parent+"/")
	})
}

// TestTaggedTestsAreRun checks that a part runs each test that depends on one of this project's
// build tags. A test whose name no -run pattern matches would never fail.
func TestTaggedTestsAreRun(t *testing.T) {
	const root = "../../.."
	parts, found := selections(), 0
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		file = strings.TrimPrefix(filepath.ToSlash(file), root+"/")
		line := buildLine.FindSubmatch(text)
		if line == nil || strings.Contains(string(line[1]), "linux") ||
			strings.Contains(string(line[1]), "!") {
			return nil
		}
		// Go sets cgo itself, and the parts have a C compiler.
		tags := slices.DeleteFunc(tagName.FindAllString(string(line[1]), -1), func(tag string) bool {
			return tag == "cgo"
		})
		for _, test := range testFunc.FindAllSubmatch(text, -1) {
			name := string(test[1])
			found++
			if name == "TestMain" || slices.Contains(byHand, name) {
				continue
			}
			if !slices.ContainsFunc(parts, func(s selection) bool {
				return s.runs("./"+path.Dir(file), name, tags)
			}) {
				t.Errorf("%s: no part runs %s, which needs the tags %v", file, name, tags)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d tests with a build tag were found: %v", found, err)
	}
}
