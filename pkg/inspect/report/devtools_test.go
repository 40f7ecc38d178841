//go:build browser

package report

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// browserWait limits every operation of a browser on a busy machine.
const browserWait = 90 * time.Second

// browser is a headless Chromium, controlled through two pipes with its DevTools protocol, without
// a port or a driver. Only the test's goroutine uses it.
type browser struct {
	t        *testing.T
	to       *os.File
	from     *os.File
	messages *bufio.Reader // of from
	session  string
	last     int
	events   []message
}

// message is an answer of the browser, or an event.
type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser starts the browser that test/setup.sh installs.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*browserWait)
	commands, to := pipe(t)
	from, answers := pipe(t)
	program := cmp.Or(os.Getenv("BRINGUPD_TEST_BROWSER"), "chromium-headless-shell")
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{commands, answers} // 3 and 4
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("cannot start the browser: %v", err)
	}
	_, _ = commands.Close(), answers.Close()
	b := &browser{t: t, to: to, from: from, messages: bufio.NewReader(from)}
	t.Cleanup(func() {
		b.session = ""
		b.call("Browser.close", nil, nil)
		_ = cmd.Wait()
		cancel()
		_, _ = to.Close(), from.Close()
	})
	b.open()
	return b
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// call sends a request to the browser and parses its answer.
func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	if err := b.ask(method, params, result); err != nil {
		b.t.Fatalf("the browser did not do %s: %v", method, err)
	}
}

// ask sends a request, and keeps the events before its answer.
func (b *browser) ask(method string, params, result any) error {
	b.last++
	if params == nil {
		params = struct{}{}
	}
	request := map[string]any{"id": b.last, "method": method, "params": params}
	if b.session != "" {
		request["sessionId"] = b.session
	}
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := b.from.SetReadDeadline(time.Now().Add(browserWait)); err != nil {
		return err
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		text, err := b.messages.ReadBytes(0)
		if err != nil {
			return err
		}
		var m message
		switch err := json.Unmarshal(text[:len(text)-1], &m); {
		case err != nil:
			return err
		case m.ID != b.last:
			b.events = append(b.events, m)
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(m.Result, result)
		}
	}
}

// open opens a page to work with and enables its events.
func (b *browser) open() {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
}

// display is how a page is shown.
type display struct {
	name          string
	width, height int
	dark          bool
	forced        bool   // the colours are those of the system
	media         string // screen if empty
}

// load opens a page at a width, and waits until it is shown.
func (b *browser) load(url string, width, height int, dark bool) {
	b.t.Helper()
	b.loadOn(url, display{width: width, height: height, dark: dark})
}

// loadOn opens a page on a display, and waits until it is shown.
func (b *browser) loadOn(url string, d display) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride",
		map[string]any{"width": d.width, "height": d.height, "deviceScaleFactor": 1, "mobile": d.width < 500}, nil)
	scheme, forced := "light", "none"
	if d.dark {
		scheme = "dark"
	}
	if d.forced {
		forced = "active"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": d.media, "features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "forced-colors", "value": forced},
	}}, nil)
	b.events = nil
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	b.until("the page is shown", `location.protocol !== 'about:' && document.readyState === 'complete' &&
		performance.getEntriesByName('first-contentful-paint').length > 0`)
}

// eval returns the value of an expression in the page.
func eval[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value T }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &result)
	if result.ExceptionDetails != nil {
		b.t.Fatalf("cannot evaluate %s: %s", expression, result.ExceptionDetails.Exception.Description)
	}
	return result.Result.Value
}

// until waits for a condition in the page.
func (b *browser) until(what, condition string) {
	b.t.Helper()
	deadline := time.Now().Add(browserWait)
	for !eval[bool](b, condition) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %s until %s", browserWait, what)
		}
		eval[any](b, `new Promise((go) => setTimeout(go, 20))`)
	}
}

// click moves the mouse to an element and clicks.
func (b *browser) click(selector string) {
	b.t.Helper()
	at := eval[[]float64](b, fmt.Sprintf(`(() => {
		const e = document.querySelector(%q);
		e.scrollIntoView({block: 'center'});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, selector))
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.call("Input.dispatchMouseEvent",
			map[string]any{"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1}, nil)
	}
}

func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		event := map[string]any{"type": "keyDown", "key": key, "code": key}
		if key == "Enter" {
			event["text"] = "\r"
		}
		b.call("Input.dispatchKeyEvent", event, nil)
		event["type"] = "keyUp"
		b.call("Input.dispatchKeyEvent", event, nil)
	}
}

// complaints returns the console's errors and warnings, and the page's network requests.
func (b *browser) complaints() (all []string) {
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			all = append(all, e.Method+" "+string(e.Params))
		case "Network.requestWillBeSent":
			var sent struct{ Request struct{ URL string } }
			if json.Unmarshal(e.Params, &sent) == nil && len(sent.Request.URL) > 5 && sent.Request.URL[:5] != "file:" {
				all = append(all, "asked for "+sent.Request.URL)
			}
		}
	}
	return all
}
