package signal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// allRecords returns an empty record of every type.
func allRecords() []record.Record {
	return []record.Record{
		&record.Job{}, &record.Joined{}, &record.Mark{}, &record.Head{}, &record.Failure{},
		&record.Abort{}, &record.OrderlyEnd{}, &record.Done{}, &record.Result{}, &record.StopRequest{},
	}
}

// fullRecords returns a record of every type with all fields set.
func fullRecords() []record.Record {
	asked := record.CallStats{Calls: 7, ByKind: map[string]int64{"open": 4, "list": 3},
		Busy: time.Second, Slowest: record.SlowCall{Op: "list", Path: "/share", Took: time.Second}}
	cause := record.Failure{
		Header: record.Header{Version: record.FormatVersion, Nonce: "ours", NodeIndex: 3,
			Host: "n3", WrittenAt: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
		Kind: "service", Phase: "workers", Message: "it died", Child: "worker", Code: 1,
		Signal: "KILL", Log: "worker-0003.log",
		Lines: []string{"last", "\xff<&>\u2028"}, LostNodes: []int{1, 2},
		ChildExit: record.ChildExit{ExitText: "exit code 1",
			OOM: &record.OOMReport{Kills: 1, Limit: 2, Cgroup: "/c"}},
		WorldRank: &record.WorldRank{Number: 12, GPUs: "2", Symptom: "broken pipe"},
	}
	return []record.Record{
		&record.Job{Run: "17.0", Key: "facts", Size: 4, ConfigDigest: "d",
			Addresses: []string{"192.0.2.1", "n0"}, ProgramVersion: "v1", PID: 7, FileSystem: "nfs",
			Steps: []string{"sandbox"}},
		&record.Joined{JobNonce: "ours", Address: "192.0.2.2", PID: 8, ProgramVersion: "v1",
			TimeToAnswer: time.Millisecond},
		&record.Mark{},
		&record.Head{Address: "192.0.2.1:6379", Env: map[string]string{"RAY_ADDRESS": "192.0.2.1:6379"}},
		&cause,
		&record.Abort{Code: 77, Outcome: "service", Cause: cause, BadNodes: []string{"n3"}},
		&record.OrderlyEnd{Code: 1, Reason: "the driver has ended"},
		&record.StopRequest{LastChange: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)},
		&record.Done{LeftProcesses: []string{"pid 7 (sh)"}, Share: &asked},
		&record.Result{
			Run: "17.0", Size: 4, Code: 77, Outcome: "service", Reason: "it died", Cause: &cause,
			BadNodes: []string{"n3"}, NodeLists: record.NodeLists{Hosts: []string{"n0", "n1"}},
			RunTimings: record.RunTimings{Duration: time.Minute, TimeToGate: time.Second,
				ProgramVersion: "v1", Phases: []record.PhaseDuration{{Phase: "join", Took: time.Second}}},
			Share: &record.FileSystemReport{Head: asked},
		},
	}
}

// allocated returns the number of bytes that the process allocates while f runs.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// asJSON returns a record as JSON without the fields that every writer sets again.
func asJSON(t *testing.T, rec record.Record) string {
	t.Helper()
	h := rec.RecordHeader()
	kept := *h
	defer func() { *h = kept }()
	*h = record.Header{}
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatalf("%T can't be written again: %v", rec, err)
	}
	return string(text)
}

// checkDecoded verifies the documented properties of a record decoded from data.
func checkDecoded(t *testing.T, data []byte, nonce string, rec record.Record) {
	t.Helper()
	h := *rec.RecordHeader()
	if data[len(data)-1] != '\n' || h.Version != record.VersionOf(rec) || h.Nonce == "" ||
		nonce != "" && h.Nonce != nonce {
		t.Errorf("took %q for a record of %q: %+v", data, nonce, rec)
	}
	theirs := reflect.New(reflect.TypeOf(rec).Elem()).Interface().(record.Record)
	if err := decodeRecord(data, h.Nonce+"x", theirs); err != errAbsent || !reflect.ValueOf(theirs).Elem().IsZero() {
		t.Errorf("%q is of attempt %q, and another one got %v, %+v", data, h.Nonce, err, theirs)
	}
	if err := decodeRecord(data[:len(data)-1], nonce, theirs); err != errAbsent {
		t.Errorf("%q without its end: %v", data, err)
	}
	want := asJSON(t, rec)
	again, err := (&Dir{nonce: "ours", host: "n1"}).encodeRecord(rec)
	if len(want) >= maxRecordSize/2 {
		return // invalid UTF-8 becomes longer than its source
	}
	if err != nil {
		t.Fatalf("can't be published again: %v", err)
	}
	read := reflect.New(reflect.TypeOf(rec).Elem()).Interface().(record.Record)
	if err := decodeRecord(again, "ours", read); err != nil || asJSON(t, read) != want {
		t.Errorf("published %s, read %s: %v", want, asJSON(t, read), err)
	}
}

func FuzzDecode(f *testing.F) {
	d := &Dir{nonce: "ours", nodeIndex: 3, host: "n3"}
	for _, rec := range fullRecords() {
		data, err := d.encodeRecord(rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "ours")
	}
	f.Fuzz(func(t *testing.T, data []byte, nonce string) {
		recs := allRecords()
		errs := make([]error, len(recs))
		took := allocated(func() {
			for i, rec := range recs {
				errs[i] = decodeRecord(data, nonce, rec)
			}
		})
		// The error of an invalid time contains each of its bytes 24 times.
		if most := uint64(64<<10 + 1024*len(data)); took > most {
			t.Errorf("%d bytes make %d, and %d is the most", len(data), took, most)
		}
		for i, rec := range recs {
			checkDecode(t, data, nonce, rec, errs[i])
		}
	})
}

// checkDecode verifies the documented properties of the result of decoding data into an empty rec.
func checkDecode(t *testing.T, data []byte, nonce string, rec record.Record, err error) {
	t.Helper()
	switch {
	case err == nil:
		checkDecoded(t, data, nonce, rec)
	case errors.Is(err, errAbsent):
		if !reflect.ValueOf(rec).Elem().IsZero() {
			t.Errorf("what is absent has left %+v", rec)
		}
		// The file may become complete, but only by growing or as another attempt's record.
		if len(data) > 0 && data[len(data)-1] == '\n' && nonce == "" {
			t.Errorf("%q is whole and anybody's, and yet absent", data)
		}
	case !strings.HasPrefix(err.Error(), "cannot read a record") || len(err.Error()) > 1000:
		t.Errorf("the error is %v", err)
	}
}

// FuzzReadRecord reads files of any size: data, followed by zeros.
func FuzzReadRecord(f *testing.F) {
	d := create(f, newPlace(f))
	d.nonce = "ours"
	path := filepath.Join(d.Path(), NodesDir, "0001.failed")
	f.Fuzz(func(t *testing.T, data []byte, more uint32) {
		size := len(data) + int(more%(2*maxRecordSize))
		must(t, errors.Join(os.WriteFile(path, data, fileMode), os.Truncate(path, int64(size))))
		var rec, want record.Failure
		var err error
		took := allocated(func() { err = d.readRecordOnce(t.Context(), NodesDir, "0001.failed", &rec) })
		if most := uint64(8*maxRecordSize + 128*len(data)); took > most {
			t.Errorf("a file of %d bytes makes %d, and %d is the most", size, took, most)
		}
		switch whole := decodeRecord(append(data, make([]byte, size-len(data))...), d.nonce, &want); {
		case size > maxRecordSize:
			if err == nil || errors.Is(err, errAbsent) || !strings.HasPrefix(err.Error(), "cannot read "+path) {
				t.Errorf("a file of %d bytes: %v", size, err)
			}
		case errors.Is(whole, errAbsent) != errors.Is(err, errAbsent) || (whole == nil) != (err == nil):
			t.Errorf("%q in a file: %v; by itself: %v", data, err, whole)
		case err == nil:
			if err := d.ReadRecord(t.Context(), NodesDir, "0001.failed", &rec); err != nil ||
				!reflect.DeepEqual(rec, want) {
				t.Errorf("read %+v, want %+v: %v", rec, want, err)
			}
		case !errors.Is(err, errAbsent) && !strings.Contains(err.Error(), path):
			t.Errorf("the error does not tell where: %v", err)
		}
	})
}
