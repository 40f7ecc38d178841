package pmix

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// written is a frame as it travels.
func written(f *frame) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(*f))), *f...)
}

// asks are what a child may say, as it says it.
func asks() map[string]*frame {
	key := func(f *frame, name string, required byte, value string) {
		f.text(name)
		f.byte(required)
		f.text(value)
	}
	all := map[string]*frame{"fence": newFrame(upFence, 7), "spawn": newFrame(upSpawn, 8), "query": newFrame(upQuery, 9)}
	f := all["fence"]
	f.number(2)
	f.proc(pmi.Proc{Job: "w", Rank: pmi.All})
	f.proc(pmi.Proc{Job: "w-1", Rank: 3})
	f.number(1)
	key(f, "pmix.timeout", 1, "5")
	f.bytes([]byte("data"))
	f = all["spawn"]
	f.proc(pmi.Proc{Job: "w", Rank: 0})
	f.number(1)
	key(f, "pmix.wdir", 0, "/tmp")
	f.number(1)
	f.text("prog")
	f.number(2)
	f.text("other name")
	f.text("arg")
	f.number(1)
	f.text("A=B")
	f.text("/home")
	f.number(4)
	f.number(1)
	key(f, "pmix.host", 0, "n1")
	f = all["query"]
	f.proc(pmi.Proc{Job: "w", Rank: 0})
	f.number(1)
	f.number(2)
	f.text("pmix.job.size")
	f.text("pmix.nothing")
	f.number(0)
	return all
}

func TestFrame(t *testing.T) {
	op, id, r, err := readFrame(bytes.NewReader(written(asks()["fence"])))
	if op != upFence || id != 7 || err != nil {
		t.Fatalf("op %d, id %d, %v", op, id, err)
	}
	want := []pmi.Proc{{Job: "w", Rank: pmi.All}, {Job: "w-1", Rank: 3}}
	if got := r.procs(); !reflect.DeepEqual(got, want) {
		t.Errorf("of %v", got)
	}
	if got := r.infos(); !reflect.DeepEqual(got, told{{"pmix.timeout", true, "5"}}) {
		t.Errorf("with %v", got)
	}
	if got := r.bytes(); string(got) != "data" || r.broken || len(r.left) > 0 {
		t.Errorf("%q, broken %v, %d left", got, r.broken, len(r.left))
	}
	if r.number(); !r.broken {
		t.Error("it has read beyond the end")
	}
}

func TestReadSpawn(t *testing.T) {
	_, _, r, err := readFrame(bytes.NewReader(written(asks()["spawn"])))
	if err != nil {
		t.Fatal(err)
	}
	got, with, err := readSpawn(r)
	want := pmi.Spawn{By: pmi.Proc{Job: "w"}, Commands: []pmi.Command{{
		Argv: []string{"prog", "arg"}, Env: []string{"A=B"}, Dir: "/tmp", Ranks: 4, Info: map[string]string{"wdir": "/tmp", "host": "n1"},
	}}}
	if err != nil || r.broken || !reflect.DeepEqual(got, want) || len(with) != 1 {
		t.Errorf("%+v, %v, %v", got, with, err)
	}
}

func TestSpawnRefuses(t *testing.T) {
	f := newFrame(upSpawn, 1)
	f.proc(pmi.Proc{Job: "w"})
	f.number(1)
	f.text("pmix.mapby")
	f.byte(1)
	f.text("node")
	f.number(1)
	f.text("prog")
	f.number(0)
	f.number(0)
	f.text("")
	f.number(1)
	f.number(0)
	_, _, r, _ := readFrame(bytes.NewReader(written(f)))
	if _, _, err := readSpawn(r); !errors.Is(err, pmi.NotSupported) || r.broken {
		t.Errorf("what must be heeded, and is not: %v", err)
	}
}

func TestQuery(t *testing.T) {
	jobs := map[string]*pmi.Job{"w": {Name: "w", Nodes: []int{0, 0, 2}, Universe: 9}, "w-1": {Name: "w-1", Nodes: []int{1}, Universe: 9}}
	s := &Server{jobs: jobs}
	for name, tc := range map[string]struct {
		key  string
		with told
		want any // nil: not known
	}{
		"all jobs":      {"pmix.qry.ns", nil, "w,w-1"},
		"own size":      {"pmix.job.size", nil, 3},
		"other's size":  {"pmix.job.size", told{{"pmix.nspace", false, "w-1"}}, 1},
		"no such job":   {"pmix.job.size", told{{"pmix.nspace", false, "x"}}, nil},
		"universe":      {"pmix.univ.size", nil, 9},
		"nodes":         {"pmix.num.nodes", nil, 2},
		"sets":          {"pmix.qry.psetnum", nil, 0},
		"names of sets": {"pmix.qry.psets", nil, ""},
		"nothing":       {"pmix.nothing", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := s.lookAt(tc.key, pmi.Proc{Job: "w"}, tc.with)
			if known != (tc.want != nil) || known && got.value != tc.want {
				t.Errorf("%v, %v; want %v", got, known, tc.want)
			}
		})
	}
	_, _, r, _ := readFrame(bytes.NewReader(written(asks()["query"])))
	var f frame
	if err := s.query(r)(t.Context(), &f); err != nil || r.broken {
		t.Errorf("one key of two is known: %v", err)
	}
}

func TestTooLong(t *testing.T) {
	s := &Server{}
	if err := s.send(t.Context(), make(frame, longestFrame+1)); !errors.Is(err, pmi.NoSpace) {
		t.Errorf("a frame that is too long: %v", err)
	}
	long := binary.BigEndian.AppendUint32(nil, longestFrame+1)
	if _, _, _, err := readFrame(bytes.NewReader(long)); !errors.Is(err, errBroken) {
		t.Errorf("one that comes: %v", err)
	}
}

// FuzzFrame reads what no child says: it must end, and without much memory.
func FuzzFrame(f *testing.F) {
	for _, ask := range asks() {
		f.Add(written(ask))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		op, _, r, err := readFrame(bytes.NewReader(data))
		if err != nil {
			return
		}
		s := &Server{clients: make(map[pmi.Proc]*client), jobs: make(map[string]*pmi.Job)}
		s.Abort = func(pmi.Proc, int, string) {}
		_, _ = s.asked(op, r)
	})
}
