package main

import (
	"flag"
	"fmt"
	"github.com/bringupd/bringupd/pkg/config"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

var update = flag.Bool("update", false, "write the generated files")

// codeTable returns the table of exit codes.
func codeTable() string {
	var b strings.Builder
	b.WriteString("| code | word | meaning | requeue? |\n|---|---|---|---|\n")
	b.WriteString("| the driver's own | `" + health.DriverOutcomeName +
		"` | the driver ran and ended; 128+n if signal n ended it | your call |\n")
	fmt.Fprintf(&b, "| the rank's own | `%s` | %s | %s |\n", health.RankOutcome.Name,
		health.RankOutcome.Meaning, health.RankOutcome.Requeue)
	for _, o := range health.OutcomeTable() {
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s |\n", o.Code, o.Name, o.Meaning, o.Requeue)
	}
	return b.String()
}

// TestLinks verifies that every link in the pages has a target, and that the README links every
// page.
func TestLinks(t *testing.T) {
	const root = "../.."
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	linked := make(map[string]bool) // by the README
	for _, page := range append(pages, root+"/README.md") {
		for _, match := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(contents(t, page), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", page, match[1], err)
			} else if anchor != "" && !slices.Contains(anchors(contents(t, path)), anchor) {
				t.Errorf("%s links to %s: no heading is called so", page, match[1])
			}
			if page == root+"/README.md" {
				linked[filepath.Clean(path)] = true
			}
		}
	}
	for _, page := range pages {
		if !linked[filepath.Clean(page)] {
			t.Errorf("the README does not link to %s", page)
		}
	}
}

// TestSecurityRows verifies that every row of the table of protections names its tests, and that
// these exist.
func TestSecurityRows(t *testing.T) {
	const root = "../.."
	there := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
			for _, match := range declaration.FindAllStringSubmatch(contents(t, path), -1) {
				there[match[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(contents(t, root+"/docs/security.md")) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| what |") {
			continue
		}
		rows++
		named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("a row names no test: %s", line)
		}
		for _, match := range named {
			if !there[match[1]] {
				t.Errorf("there is no %s, which this row names: %s", match[1], line)
			}
		}
	}
	if rows < 20 {
		t.Errorf("there are %d rows", rows)
	}
}

// TestPages verifies that every page says for whom it is in its first two lines, that no page is
// too long, except the generated one, and that llms.txt, which is also the navigation of the site,
// lists each page once, in five groups, by its title and one line.
func TestPages(t *testing.T) {
	const root, limit, limitOfREADME = "../..", 350, 150
	list := contents(t, root+"/llms.txt")
	groups := regexp.MustCompile(`(?m)^## (.*)$`).FindAllString(list, -1)
	if want := []string{"## Start", "## Run", "## Explain", "## Operate", "## Reference"}; !slices.Equal(groups, want) {
		t.Errorf("llms.txt has the groups %q, not %q", groups, want)
	}
	if n := strings.Count(contents(t, root+"/README.md"), "\n"); n > limitOfREADME {
		t.Errorf("the README has %d lines, more than %d", n, limitOfREADME)
	}
	readers := regexp.MustCompile(`\b[Ff]or (users|authors|developers|contributors|administrators|everyone|programs)\b`)
	pages, err := filepath.Glob(root + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, name := contents(t, page), filepath.Base(page)
		if n := strings.Count(text, "\n"); n > limit && name != "cli.md" {
			t.Errorf("%s has %d lines, more than %d: split it", page, n, limit)
		}
		_, text, _ = strings.Cut("\n"+text, "\n# ")
		title, text, _ := strings.Cut(text, "\n\n")
		lines := strings.SplitN(text, "\n", 3)
		if !readers.MatchString(strings.Join(lines[:min(2, len(lines))], " ")) {
			t.Errorf("%s does not say for whom it is in its first two lines: %q", page, lines[0])
		}
		if n := strings.Count(list, "\n- ["+title+"](docs/"+name+"): "); n != 1 {
			t.Errorf("llms.txt lists %s, %q, %d times", page, title, n)
		}
	}
	if n := strings.Count(list, "\n- "); n != len(pages) {
		t.Errorf("llms.txt lists %d pages, and there are %d", n, len(pages))
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// anchors returns the anchors of a page's headings.
func anchors(text string) (all []string) {
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(kept, " ", "-"))
		}
	}
	return all
}

// TestFlagsInPages verifies that every flag that the pages name exists in this program or in
// another known one.
func TestFlagsInPages(t *testing.T) {
	// Slurm's flags.
	known := strings.Fields("ntasks-per-node kill-on-bad-exit wait no-kill overlap signal " +
		"requeue no-requeue open-mode nodes exclude " +
		"mem mem-per-cpu mem-per-gpu parsable pty gres container-image account partition time " +
		"output job-name exclusive gpus-per-node mpi " +
		"ntasks cpu-bind gpu-bind mem-bind membind gpus-per-task ntasks-per-gpu network " +
		"unbuffered error label distribution " +
		"bind-to hostfile pid cap-add nworkers nthreads nanny memory-limit dashboard jupyter " +
		"container-name container-mounts " +
		"ppn map-by tasks-per-node rs tasks " + // other launchers' flags
		"container-workdir container-remap-root nv init include-dashboard working-dir no-wait " +
		"num-cpus num-gpus ray-client-server-port object-store-memory memory gres resources " +
		"least shm-size version " +
		// torchrun's, some of them with underscores, and torchfrtrace's
		"master nproc nproc-per-node rdzv-backend rdzv-endpoint rdzv-id master-addr master-port " +
		"node-rank standalone max-restarts no-python redirects tee local-ranks-filter prefix " +
		// Those of other launchers of ranks, as far as their first underscore.
		"num use world num-nodes launcher include no machine main main-address main-port " +
		"np rank-by report-bindings host mca tag-output output-filename " + // mpirun's
		// Ray's, and more of Slurm's
		"address min-nodes labels dashboard-port node-manager-port min-worker-port export cpus-per-task " +
		"base ip-address epochs " + // of other programs
		"op-latency trace dir fences " + // of test/cmd/simulate
		"port data-parallel-rank data-parallel-size data-parallel-address data-parallel-rpc-port " + // vLLM's
		"collector " + // node-exporter's, as far as its first dot
		"strip-components ignore-missing purge no-index only-binary find-links")
	for _, command := range (&invocation{}).newApp().Commands {
		for _, flag := range command.Flags {
			if s, is := flag.(*config.Setting); !is || !s.Hidden { // a page names no removed flag
				known = append(known, flag.Names()...)
			}
		}
	}
	pages, err := filepath.Glob("../../docs/[^d]*.md") // not development.md, which names Go's flags
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../../README.md", "../../docs/dask.md",
		"../../docs/deaths.md", "../../docs/doctor.md",
		"topics/env", "topics/probes", "topics/ray") {
		flag := regexp.MustCompile(`(?:^|[^-\w])--([a-z][-a-z0-9]*)`)
		for _, match := range flag.FindAllStringSubmatch(contents(t, page), -1) {
			if !slices.Contains(known, match[1]) {
				t.Errorf("%s names --%s, which nobody has", page, match[1])
			}
		}
	}
}
