package report

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// evil is a text that no reader may execute.
const evil = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;owned\x07\x1b[2J\x1b[31m" +
	"\r\x00\x08\u202egnirts\u2028`` ``` [x](javascript:alert(3)) | <b> {{.}}"

func evilView(t *testing.T) *View {
	t.Helper()
	run := sample(4, true)
	dir := t.TempDir()
	run.Path = dir
	logs := filepath.Join(dir, signal.LogsDir)
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"driver.log": evil + "\nlast\n", "worker-0003.log": strings.Repeat("x", 10<<20), "head.log": "",
		"sandbox-0001.log": strings.Repeat("\n", 1<<20) + "end\n", "<script>.log": "never read",
		"daemon-0000.log": `{"level":"info","at":"\u001b[2J","msg":"<script>","x":{"y":"\u001b"}}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(logs, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(logs, "worker-0001.log")); err != nil {
		t.Fatal(err)
	}
	for i := range run.Nodes {
		run.Nodes[i].Host = evil
		run.Nodes[i].Phases[0].Phase = evil
	}
	run.Name, run.Problems = evil, []string{evil}
	run.Result.Reason, run.Result.Advice, run.Result.BadNodes = evil, []string{evil}, []string{evil}
	run.Result.Cause.Message, run.Result.Cause.Kind, run.Result.Cause.Lines = evil, evil, []string{evil}
	run.Nodes[3].Check.Findings[0].Observed, run.Nodes[3].Check.Findings[0].Verdict = evil, "FAIL"
	run.Job.ProgramVersion, run.Control.HeadRecord.Env = evil, map[string]string{evil: evil}
	exit := eventlog.Fields{FailureFields: eventlog.FailureFields{Subject: new(2), What: evil}}
	exit.Child, exit.Reason, exit.Lines = evil, evil, []string{evil}
	run.Events = []timeline.Event{{Name: eventlog.InstanceExited, Fields: exit}}
	return NewView(run, ReadLogs(context.Background(), run), time.Time{})
}

func TestEvilLinesAreInert(t *testing.T) {
	v := evilView(t)
	for _, format := range []Format{FormatHTML, FormatJSON} {
		t.Run(string(format), func(t *testing.T) {
			var b bytes.Buffer
			if err := v.Write(&b, format); err != nil {
				t.Fatal(err)
			}
			written := b.String()
			if len(written) > 300_000 {
				t.Errorf("%d bytes are written of 10 MB without a newline", len(written))
			}
			for _, r := range written {
				if r != '\n' && textutil.StripControls(string(r)) != string(r) {
					t.Fatalf("%q is written", r)
				}
			}
			if !strings.Contains(written, "bytes in total)") {
				t.Error("it is not told that a line is cut")
			}
			if strings.Contains(written, "root:x:0") {
				t.Error("a link is followed out of the run directory")
			}
			switch format {
			case FormatJSON:
				if !json.Valid(b.Bytes()) {
					t.Error("it is no JSON")
				}
			case FormatHTML:
				if n := len(regexp.MustCompile(`(?i)<script`).FindAllString(written, -1)); n != 2 {
					t.Errorf("the page has %d scripts, not its two", n)
				}
				if strings.Contains(strings.ToLower(written), "<img") {
					t.Error("the page has an image")
				}
			}
		})
	}
}

// TestPageOfHardlyAnything verifies that a damaged directory yields a page nevertheless.
func TestPageOfHardlyAnything(t *testing.T) {
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, one := range []struct {
		name string
		run  timeline.Run
	}{
		{"nothing", timeline.Run{ReadAt: at, Problems: []string{"there is no job record"}}},
		{"nodes without a sign", timeline.Run{ReadAt: at, Nodes: make([]timeline.Node, 3)}},
		{"a result alone", timeline.Run{ReadAt: at, Result: &record.Result{Code: 76, Reason: "x"}}},
		{"ranks that do not exist", timeline.Run{ReadAt: at, Result: &record.Result{
			Code: 76, Cause: &record.Failure{Header: record.Header{NodeIndex: 99}, LostNodes: []int{-3, 1 << 30}},
			FailureContext: record.FailureContext{Consequences: []record.Failure{{Header: headerOf(-5, 0)}}},
			NodeLists:      record.NodeLists{Dropped: []record.DroppedNode{{NodeIndex: 77}}},
		}, Events: []timeline.Event{{NodeIndex: 500, Name: eventlog.RecordSeen}}}},
		{"an abort alone", timeline.Run{ReadAt: at, Control: timeline.Control{Aborts: []record.Abort{{Code: 75}}}}},
		{"an open gate and no nodes", timeline.Run{ReadAt: at, Control: timeline.Control{
			Job: timeline.RecordTime{Exists: true, At: at.Add(-time.Minute)},
			Go:  timeline.RecordTime{Exists: true, At: at},
		}}},
		{"times before there was time", timeline.Run{ReadAt: at, Nodes: []timeline.Node{{
			Phases: []timeline.PhaseSpan{{Phase: "join", From: at, To: at.Add(-time.Hour)}, {To: at}},
		}}}},
	} {
		t.Run(one.name, func(t *testing.T) {
			v := NewView(&one.run, ReadLogs(context.Background(), &one.run), time.Time{})
			if page := pageOf(t, v); !strings.Contains(page, "</html>") || v.Banner.Word == "" {
				t.Errorf("the page is cut off, or says nothing: %q", v.Banner.Word)
			}
			if err := v.Write(new(bytes.Buffer), FormatJSON); err != nil {
				t.Error(err)
			}
		})
	}
}
