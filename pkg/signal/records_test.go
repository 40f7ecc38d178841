package signal

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestDecode(t *testing.T) {
	const ours = `{"v":2,"nonce":"ours","rank":3,"host":"n3","kind":"service","what":"it died"}` + "\n"
	whole := record.Failure{Header: record.Header{Version: record.FormatVersion, Nonce: "ours",
		NodeIndex: 3, Host: "n3"}, Kind: "service", Message: "it died"}
	for _, tc := range []struct {
		name   string
		data   string
		nonce  string
		absent bool // errAbsent
		bad    bool // another error
	}{
		{name: "ours", data: ours, nonce: "ours"},
		{name: "of whatever attempt", data: ours, nonce: ""},
		{name: "with a field of a later version", data: ours[:len(ours)-2] + `,"new":1}` + "\n", nonce: "ours"},
		{name: "another attempt's", data: ours, nonce: "theirs", absent: true},
		{name: "empty", data: "", nonce: "ours", absent: true},
		{name: "cut short", data: ours[:40], nonce: "ours", absent: true},
		{name: "without its last byte", data: ours[:len(ours)-1], nonce: "ours", absent: true},
		{name: "zeros, as a crash leaves them", data: strings.Repeat("\x00", len(ours)), nonce: "ours", absent: true},
		{name: "of a newer version", data: `{"v":3,"nonce":"ours"}` + "\n", nonce: "ours", bad: true},
		{name: "of an older version", data: strings.Replace(ours, `"v":2`, `"v":1`, 1), nonce: "ours", bad: true},
		{name: "of a newer version and another attempt", data: `{"v":3,"nonce":"theirs"}` + "\n",
			nonce: "ours", bad: true},
		{name: "without a header", data: "{}\n", nonce: "", bad: true},
		{name: "without a nonce", data: `{"v":2}` + "\n", nonce: "", bad: true},
		{name: "null", data: "null\n", nonce: "", bad: true},
		{name: "no JSON", data: "hello\n", nonce: "ours", bad: true},
		{name: "damaged in the middle", data: strings.Replace(ours, `"kind"`,
			"\x00\x00\x00\x00\x00\x00", 1), nonce: "ours", bad: true},
		{name: "two in one", data: ours + ours, nonce: "ours", bad: true},
		{name: "a field of another type", data: `{"v":2,"nonce":"ours","kind":7}` + "\n", nonce: "ours", bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var rec record.Failure
			err := decodeRecord([]byte(tc.data), tc.nonce, &rec)
			if errors.Is(err, errAbsent) != tc.absent || (err != nil) != (tc.absent || tc.bad) {
				t.Errorf("got the error %v", err)
			}
			if err == nil && !reflect.DeepEqual(rec, whole) {
				t.Errorf("got %+v", rec)
			}
			if tc.absent && !reflect.DeepEqual(rec, record.Failure{}) {
				t.Errorf("what is not meant has left %+v", rec)
			}
		})
	}
}

func TestEncode(t *testing.T) {
	d := &Dir{nonce: "ours", nodeIndex: 3, host: "n3"}
	rec := &record.Failure{Header: record.Header{Version: 9, Nonce: "forged", NodeIndex: 9},
		Kind: "service", Message: "it died\nhere", LostNodes: []int{1}}
	data, err := d.encodeRecord(rec)
	must(t, err)
	if bytes.IndexByte(data, '\n') != len(data)-1 {
		t.Errorf("not one line: %q", data)
	}
	var again record.Failure
	must(t, decodeRecord(data, "ours", &again))
	rec.WrittenAt = again.WrittenAt // without the monotonic part
	if !reflect.DeepEqual(&again, rec) || again.NodeIndex != 3 || again.Host != "n3" ||
		again.Version != record.FormatVersion {
		t.Errorf("wrote %+v, read %+v", rec, again)
	}
}

// TestEncodeLargest encodes the largest records: the last lines of a child that printed binary
// data, and the hosts of a very large job.
func TestEncodeLargest(t *testing.T) {
	d := &Dir{nonce: randomTag(), host: "n0"}
	cause := record.Failure{Kind: "service", Message: "it died"}
	for range 20 {
		cause.Lines = append(cause.Lines, strings.Repeat("\xff", 1<<10))
	}
	var hosts []string
	for node := range 10_000 {
		hosts = append(hosts, fmt.Sprintf("node-%05d.a-rather-long-domain.example", node))
	}
	for _, tc := range []struct {
		name string
		rec  record.Record
	}{
		{"a cause with lines that are not text", &cause},
		{"a result of 10000 nodes", &record.Result{Cause: &cause, NodeLists: record.NodeLists{Hosts: hosts}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := d.encodeRecord(tc.rec)
			if err != nil || len(data) > maxRecordSize {
				t.Errorf("%d bytes: %v", len(data), err)
			}
		})
	}
	t.Run("too large", func(t *testing.T) {
		if _, err := d.encodeRecord(&record.Failure{Message: strings.Repeat("x", maxRecordSize)}); err == nil {
			t.Error("no error")
		}
	})
}
