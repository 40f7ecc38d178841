//go:build browser

package report

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

// samplePages returns the views of the runs whose pages are tested on all displays.
func samplePages(t *testing.T) map[string]*View {
	t.Helper()
	loading, logs := recorded(t, "roles-waiting")
	attempts := look(4, true)
	attempts.Attempts = []timeline.Attempt{
		{Number: 1, Run: "4711.0", Path: "/logs/4711.0", Code: new(76), Reason: "node n3 was lost"},
		{Number: 2, Run: "4711.0-a1", Path: "/logs/4711.0-a1/report.html", Code: new(1), Reason: "rank 3 failed"},
		{Number: 3, Run: "4711.0-a2", Path: "/logs/4711.0-a2", IsThis: true},
	}
	attempts.Steps = []StepPoint{{sampleGate, 0}, {sampleGate + time.Hour, 100}, {sampleEnd, 180}}
	attempts.Restarts = []time.Duration{sampleGate + time.Hour}
	torch := sampleRanks(8)
	return map[string]*View{
		"torch failure":   NewView(torch, sampleLogs(torch), time.Time{}),
		"roles loading":   NewView(loading, logs, loading.ReadAt),
		"roles failed":    NewView(sampleRoles(5, true), nil, time.Time{}),
		"64 nodes":        look(64, true),
		"1,000 instances": NewView(sampleRoles(251, true), nil, time.Time{}),
		"three attempts":  attempts,
	}
}

var displays = []display{
	{name: "light", width: 1400, height: 900},
	{name: "dark", width: 1400, height: 900, dark: true},
	{name: "phone", width: 390, height: 844},
	{name: "small phone", width: 320, height: 640, dark: true},
	{name: "print", width: 794, height: 1123, media: "print"},
	{name: "forced colours", width: 1400, height: 900, dark: true, forced: true},
}

// TestDisplaysInABrowser verifies that the pages of several runs can be read on all displays.
func TestDisplaysInABrowser(t *testing.T) {
	b := startBrowser(t)
	axe, err := os.ReadFile(os.Getenv("BRINGUPD_TEST_AXE"))
	if err != nil {
		t.Fatalf("cannot read axe-core, which have_axe of test/setup.sh installs: %v", err)
	}
	for name, v := range samplePages(t) {
		url := saved(t, v)
		for _, d := range displays {
			t.Run(name+", "+d.name, func(t *testing.T) {
				b.t = t
				b.loadOn(url, d)
				b.showsError(v.Banner.Error)
				b.fits(d)
				switch {
				case d.forced:
					b.showsBars()
				case d.media == "print":
					b.prints()
				case d.width >= 390: // axe-core takes long
					b.isAccessible(string(axe))
					b.click(".row[data-rank]")
					b.until("the node is shown", `!document.getElementById('drawer').hidden`)
					b.isAccessible(string(axe))
					b.fits(d)
				}
				if all := b.complaints(); len(all) > 0 {
					t.Errorf("the page complains: %s", strings.Join(all, "\n"))
				}
			})
		}
	}
}

// showsError checks that the first cause ends with the error, which nothing cuts or hides, and that
// its box shows the last lines.
func (b *browser) showsError(want string) {
	b.t.Helper()
	if want == "" {
		return
	}
	got := eval[string](b, `(() => {
		const error = document.querySelector('.chain .first .error');
		error.scrollIntoView({ block: 'center' });
		const r = error.getBoundingClientRect();
		const on = document.elementFromPoint(r.x + 15, r.y + r.height / 2);
		if (on !== error) return 'hidden by ' + on.outerHTML.slice(0, 80);
		const pre = error.parentElement.querySelector('pre');
		const end = pre.firstElementChild.getBoundingClientRect().bottom;
		if (end > pre.getBoundingClientRect().bottom) return 'the box does not show its end';
		if (pre.tabIndex !== 0) return 'the box cannot be reached by the keyboard';
		return error.innerText;
	})()`)
	if got != want {
		b.t.Errorf("the error is %q, want %q", got, want)
	}
	if title := eval[string](b, `document.title`); !strings.Contains(title, want) {
		b.t.Errorf("the title is %q", title)
	}
}

// fits checks that no part of the page is wider than the display.
func (b *browser) fits(d display) {
	b.t.Helper()
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > d.width {
		b.t.Errorf("the page is %d px wide on a display of %d", wide, d.width)
	}
}

// showsBars checks that all bars have a border and a colour, where the system sets most colours.
func (b *browser) showsBars() {
	b.t.Helper()
	if !eval[bool](b, `matchMedia('(forced-colors: active)').matches`) {
		b.t.Fatal("the browser does not force colours")
	}
	invisible := eval[string](b, `[...document.querySelectorAll('.row .lane > i, .map > *')].filter((bar) => {
		if (bar.closest('.grid')) return false;
		const style = getComputedStyle(bar);
		const isPlain = style.backgroundColor === 'rgba(0, 0, 0, 0)' && style.backgroundImage === 'none';
		return !['solid', 'dashed'].includes(style.borderTopStyle) || isPlain && !bar.matches('.idle');
	}).map((bar) => bar.outerHTML).join('\n')`)
	if invisible != "" {
		b.t.Errorf("invisible are %.300s", invisible)
	}
}

// prints checks that boxes are printed as a whole, and that the page can be printed.
func (b *browser) prints() {
	b.t.Helper()
	cut := eval[int](b, `[...document.querySelectorAll('pre')].filter((p) =>
		p.scrollHeight > p.clientHeight + 1).length`)
	if cut > 0 {
		b.t.Errorf("%d boxes are cut in print", cut)
	}
	var printed struct{ Data string }
	b.call("Page.printToPDF", map[string]any{"printBackground": false}, &printed)
	if len(printed.Data) < 10_000 {
		b.t.Errorf("the printed page has %d bytes", len(printed.Data))
	}
}

// isAccessible checks that axe-core has no serious or critical findings.
func (b *browser) isAccessible(axe string) {
	b.t.Helper()
	eval[any](b, axe+`; null`)
	for _, finding := range eval[[]string](b, `axe.run(document).then((found) => !found.passes.length ?
		['axe-core has tested nothing'] : found.violations.filter((v) =>
			['serious', 'critical'].includes(v.impact)).map((v) => v.id + ': ' + v.nodes.length + ' such as ' +
			v.nodes[0].html.slice(0, 200) + ' ' + v.nodes[0].failureSummary))`) {
		b.t.Error(finding)
	}
}
