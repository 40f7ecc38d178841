//go:build browser

package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// saved writes a sample's page to a file, and returns its URL.
func saved(t *testing.T, v *View) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte(pageOf(t, v)), 0o644); err != nil {
		t.Fatal(err)
	}
	return "file://" + path
}

func TestPageInABrowser(t *testing.T) {
	b := startBrowser(t)
	for _, size := range []int{4, 128, 1024} {
		t.Run(fmt.Sprint(size, " nodes"), func(t *testing.T) {
			b.t = t
			url := saved(t, look(size, true))
			for _, dark := range []bool{false, true} {
				b.load(url, 1280, 900, dark)
				b.explains(size)
				b.isTheme(dark)
				b.unhacked()
			}
			b.showsNode(size)
			b.goesByKeys()
			b.fitsPhone(url)
			if all := b.complaints(); len(all) > 0 {
				t.Errorf("the page complains: %s", strings.Join(all, "\n"))
			}
		})
	}
}

// explains checks the banner.
func (b *browser) explains(size int) {
	b.t.Helper()
	banner := eval[string](b, `document.getElementById('banner').innerText`)
	died := fmt.Sprintf("the worker's service on n%d has died", size-1)
	for _, want := range []string{"Failed", "exit code 77", died, "first cause", "more memory", "raylet: cannot"} {
		if !strings.Contains(banner, want) {
			b.t.Errorf("the banner does not say %q:\n%s", want, banner)
		}
	}
}

// isTheme checks the theme, by the brightness of the background, and the switch.
func (b *browser) isTheme(dark bool) {
	b.t.Helper()
	const isDark = `Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]) < 128`
	if eval[bool](b, isDark) != dark {
		b.t.Errorf("the theme is not the one that is preferred (dark: %t)", dark)
	}
	b.click("#theme")
	if eval[bool](b, isDark) == dark {
		b.t.Error("the switch does not change the theme")
	}
	b.click("#theme")
}

// unhacked checks that every line of a log is shown as text only.
func (b *browser) unhacked() {
	b.t.Helper()
	if eval[bool](b, `'hacked' in window || document.images.length > 0 || document.scripts.length !== 2`) {
		b.t.Error("a line of a log has become a part of the page")
	}
	if !eval[bool](b, `[...document.querySelectorAll('pre')].some((p) => p.textContent.includes('<script>'))`) {
		b.t.Error("the line with <script> is not shown")
	}
}

// showsNode clicks on the failed node, which is the first row.
func (b *browser) showsNode(size int) {
	b.t.Helper()
	if eval[bool](b, `!document.getElementById('drawer').hidden`) {
		b.t.Error("a node is shown before it is asked for")
	}
	b.click(fmt.Sprintf(`.row[data-rank="%d"]`, size-1))
	b.until("the node is shown", `!document.getElementById('drawer').hidden`)
	shown := eval[string](b, `document.getElementById('drawer').innerText`)
	for _, want := range []string{fmt.Sprint("n", size-1), "join", "check", "driver", "failed", "8.0 GiB"} {
		if !strings.Contains(shown, want) {
			b.t.Errorf("the node that was clicked does not show %q:\n%s", want, shown)
		}
	}
	if n := eval[int](b, `document.querySelectorAll('#drawer .lanes tbody tr').length`); n < 4 {
		b.t.Errorf("the node that was clicked shows %d lanes", n)
	}
}

// goesByKeys moves with the keys from the node that is shown.
func (b *browser) goesByKeys() {
	b.t.Helper()
	const shown = `document.querySelector('#drawer h2').innerText`
	first := eval[string](b, `document.querySelector('.row[data-rank]').focus(), `+shown)
	b.press("ArrowDown")
	if next := eval[string](b, shown); next == first {
		b.t.Errorf("the arrow key does not go on from %s", first)
	}
	if eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`) == "none" {
		b.t.Error("the focus can't be seen")
	}
	b.press("Escape")
	if eval[bool](b, `!document.getElementById('drawer').hidden`) {
		b.t.Error("Escape does not close the node")
	}
	b.press("Enter")
	b.until("Enter shows the node", `!document.getElementById('drawer').hidden`)
	b.press("Escape")
}

// fitsPhone checks that only tables are wider than a phone.
func (b *browser) fitsPhone(url string) {
	b.t.Helper()
	b.load(url, 390, 844, false)
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 390 {
		b.t.Errorf("the page is %d px wide on a phone of 390", wide)
	}
	b.click(`.row[data-rank]`)
	b.until("the node is shown on a phone", `!document.getElementById('drawer').hidden`)
	if wide := eval[int](b, `document.documentElement.scrollWidth`); wide > 390 {
		b.t.Errorf("the page with a node is %d px wide on a phone of 390", wide)
	}
}
