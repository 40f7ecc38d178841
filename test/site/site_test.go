// Package site checks the documentation that make site has built.
package site

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const built = "../../dist/site"

var (
	// loads matches an element of a page, or a rule of a style sheet, that loads a file. A link of the
	// text does not.
	loads = regexp.MustCompile(`(?is)<(?:script|img|iframe|source|video|audio|object|embed)\b` +
		`[^>]*?\s(?:src|data)="?([^"\s>]+)` +
		`|<link\b[^>]*?\shref="?([^"\s>]+)|(?-i:\burl\()["']?([^"')]+)|@import\s+["']([^"']+)`)
	// follows matches a link of the text.
	follows = regexp.MustCompile(`(?is)<a\b[^>]*?\shref="?([^"\s>]+)`)
	// names matches the anchors of a page.
	names = regexp.MustCompile(`(?is)\sid="?([^"\s>]+)`)
	// anchors has the anchors of the pages that were read.
	anchors = make(map[string][]string)
)

// TestSite verifies that the pages load nothing from other hosts, and that each file and each anchor
// to which a page refers exists.
func TestSite(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(built, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".html") && !strings.HasSuffix(path, ".css") {
			return err
		}
		text := read(t, path)
		for _, target := range targets(loads, text) {
			checkTarget(t, path, target, false)
		}
		if strings.HasSuffix(path, ".html") && filepath.Base(path) != "404.html" {
			pages++
			for _, target := range targets(follows, text) {
				checkTarget(t, path, target, true)
			}
		}
		return nil
	})
	if err != nil || pages < 50 {
		t.Errorf("there are %d pages in %s (%v): run make site", pages, built, err)
	}
}

// TestSearch verifies that the index of the search box has the text of the pages.
func TestSearch(t *testing.T) {
	if index := read(t, built+"/search.json"); !strings.Contains(index, "docs/roles-serving.html#health") {
		t.Errorf("the index of the search box lacks a section of a page; it has %d bytes", len(index))
	}
	if page := read(t, built+"/index.html"); !strings.Contains(page, `"search":"./assets/`) {
		t.Error("the first page has no search box")
	}
}

func targets(pattern *regexp.Regexp, text string) (all []string) {
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Join(match[1:], ""))
	}
	return all
}

// checkTarget verifies what the file at path refers to. Only a link may lead to another host.
func checkTarget(t *testing.T, path, target string, isLink bool) {
	t.Helper()
	to, err := url.Parse(target)
	switch {
	case err == nil && to.Scheme == "data":
		return
	case err != nil || to.Scheme != "" || to.Host != "":
		if err != nil || !isLink {
			t.Errorf("%s loads %s from another host (%v)", path, target, err)
		}
		return
	}
	file := path
	switch {
	case filepath.Base(path) == "404.html": // its addresses begin at the root of the server
		file = filepath.Join(built, to.Path)
	case to.Path != "":
		file = filepath.Join(filepath.Dir(path), to.Path)
	}
	if found, err := os.Stat(file); err != nil || found.IsDir() && isLink && file != filepath.Clean(built) {
		t.Errorf("%s refers to %s, which does not exist", path, target)
	} else if to.Fragment != "" && strings.HasSuffix(file, ".html") {
		if anchors[file] == nil {
			anchors[file] = targets(names, read(t, file))
		}
		if !slices.Contains(anchors[file], to.Fragment) {
			t.Errorf("%s refers to %s: no element is called so", path, target)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("cannot read a file of the site: %v: run make site", err)
	}
	return string(data)
}
