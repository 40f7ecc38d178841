//go:build browser

package report

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestLivePageInABrowser follows a run: the page replaces its content, keeps what the user has opened,
// and stops when the run is over, or says that the server has gone.
func TestLivePageInABrowser(t *testing.T) {
	b := startBrowser(t)
	var step, requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		run := sample(4, false)
		run.Job.Plan = &record.Plan{
			Framework: "ray", Driver: "train.py", Command: "python train.py --lr=0.1", JobName: "llama", NodesNeeded: 4,
			Flags: []string{"--framework=ray", "--gpus-per-node=8"},
		}
		logs := sampleLogs(run)
		if step.Load() < 2 {
			run.Result, run.ReadAt = nil, dawn.Add(time.Minute)
			run.Control.Drain = run.Control.Over
		}
		if step.Load() > 0 {
			logs[0].Lines = append(logs[0].Lines, "step 18400  loss 1.8700")
		}
		v := NewView(run, logs, run.ReadAt)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		var page bytes.Buffer
		if err := v.writePage(&page, 100*time.Millisecond); err != nil {
			t.Error(err)
		}
		_, _ = page.WriteTo(w) // the browser may have closed the connection
	}))
	defer server.Close()
	for _, dark := range []bool{false, true} {
		step.Store(0)
		b.load(server.URL+"/token/", 1280, 900, dark)
		text := eval[string](b, `document.querySelector('.banner').innerText`)
		for _, want := range []string{
			"Running", "llama", "python train.py --lr=0.1", "--framework=ray --gpus-per-node=8",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the banner has no %q:\n%s", want, text)
			}
		}
		// Open a folded part and a node; they stay open when the content changes.
		b.click("#configuration") // scrolls there
		eval[bool](b, `document.querySelectorAll('details.log')[1].open = true`)
		b.click(`.row[data-rank="2"]`)
		b.until("the node is shown", `!document.getElementById('drawer').hidden`)
		step.Store(1)
		b.until("the new line is shown", `document.querySelector('pre[data-log]').textContent.includes('step 18400')`)
		if !eval[bool](b, `document.querySelectorAll('details.log')[1].open &&
			!document.getElementById('drawer').hidden &&
			document.querySelector('.row[data-rank="2"]').getAttribute('aria-expanded') === 'true'`) {
			t.Error("what was open is closed by the new content")
		}
		if state := eval[string](b, `document.getElementById('live').textContent`); state != "● live" {
			t.Errorf("the state is %q", state)
		}
		// At its end the page stops asking.
		step.Store(2)
		b.until("the end is shown", `document.getElementById('live').textContent === 'the run is over' &&
			document.querySelector('h1').textContent.includes('Ended well')`)
		asked := requests.Load()
		eval[bool](b, `new Promise((done) => setTimeout(() => done(true), 500))`)
		if now := requests.Load(); now != asked {
			t.Errorf("after the end it has asked %d times", now-asked)
		}
		own := func(complaint string) bool { return complaint == "asked for "+server.URL+"/token/" }
		if all := slices.DeleteFunc(b.complaints(), own); len(all) > 0 {
			t.Errorf("the page complains: %s", strings.Join(all, "\n"))
		}
	}
	step.Store(0)
	b.load(server.URL+"/token/", 1280, 900, false)
	server.CloseClientConnections()
	server.Close()
	b.until("the server has gone", `document.getElementById('live').textContent.includes('no connection')`)
}
