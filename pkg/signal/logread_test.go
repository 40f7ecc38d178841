package signal

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadLog(t *testing.T) {
	d := create(t, newPlace(t))
	logs := filepath.Join(d.Path(), Logs)
	put(t, filepath.Join(logs, "driver.log"), "0123456789")
	put(t, filepath.Join(logs, ".hidden"), "hidden")
	mkdir(t, filepath.Join(logs, "head"), dirMode)
	point(t, filepath.Join(logs, "link"), "driver.log")
	if err := syscall.Mkfifo(filepath.Join(logs, "fifo"), fileMode); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		offset int64
		want   string
		says   string // where it is refused
	}{
		{"driver.log", 0, "0123", ""},
		{"driver.log", 8, "89", ""},
		{"driver.log", 10, "", ""},
		{"driver.log", 99, "", ""},
		{"head", 0, "", "it is no file"},
		{"fifo", 0, "", "it is no file"},
		{"link", 0, "", syscall.ELOOP.Error()},
		{"missing", 0, "", syscall.ENOENT.Error()},
		{".hidden", 0, "", "it is no name of a log"},
		{"../logs/driver.log", 0, "", "it is no name of a log"},
	} {
		buffer := make([]byte, 4)
		n, err := d.ReadLog(within(t), tc.name, tc.offset, buffer)
		if string(buffer[:n]) != tc.want || (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s from %d: %q, %v", tc.name, tc.offset, buffer[:n], err)
		}
	}
}

func TestHosts(t *testing.T) {
	d := create(t, newPlace(t))
	want := map[int]string{}
	for _, rank := range []int{0, 2} {
		own := d.As(rank)
		own.host = NodeName(rank, 4, "host")
		publish(t, own, Nodes, NodeName(rank, 4, Joined), &JoinedRecord{})
		want[rank] = own.host
	}
	publish(t, d, Nodes, NodeName(1, 4, Up), &State{})
	if got, err := d.Hosts(within(t)); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, not %v", got, err, want)
	}
	if err := os.RemoveAll(filepath.Join(d.Path(), Nodes)); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Hosts(within(t)); err == nil {
		t.Errorf("without the directory: %v", got)
	}
}
