package pmix

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// written returns a frame in its transfer format.
func written(f *frame) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(*f))), *f...)
}

// asks returns all messages that a child may send.
func asks() map[string]*frame {
	key := func(f *frame, name string, required byte, value string) {
		f.addText(name)
		f.addByte(required)
		f.addText(value)
	}
	all := map[string]*frame{"fence": newFrame(upFence, 7), "spawn": newFrame(upSpawn, 8),
		"query": newFrame(upQuery, 9)}
	f := all["fence"]
	f.addNumber(2)
	f.addProc(pmi.ProcID{Job: "w", Rank: pmi.AllRanks})
	f.addProc(pmi.ProcID{Job: "w-1", Rank: 3})
	f.addNumber(1)
	key(f, "pmix.timeout", 1, "5")
	f.addBytes([]byte("data"))
	f = all["spawn"]
	f.addProc(pmi.ProcID{Job: "w", Rank: 0})
	f.addNumber(1)
	key(f, "pmix.wdir", 0, "/tmp")
	f.addNumber(1)
	f.addText("prog")
	f.addNumber(2)
	f.addText("other name")
	f.addText("arg")
	f.addNumber(1)
	f.addText("A=B")
	f.addText("/home")
	f.addNumber(4)
	f.addNumber(1)
	key(f, "pmix.host", 0, "n1")
	f = all["query"]
	f.addProc(pmi.ProcID{Job: "w", Rank: 0})
	f.addNumber(1)
	f.addNumber(2)
	f.addText("pmix.job.size")
	f.addText("pmix.nothing")
	f.addNumber(0)
	return all
}

func TestFrame(t *testing.T) {
	op, id, r, err := readFrame(bytes.NewReader(written(asks()["fence"])))
	if op != upFence || id != 7 || err != nil {
		t.Fatalf("op %d, id %d, %v", op, id, err)
	}
	want := []pmi.ProcID{{Job: "w", Rank: pmi.AllRanks}, {Job: "w-1", Rank: 3}}
	if got := r.readProcs(); !reflect.DeepEqual(got, want) {
		t.Errorf("of %v", got)
	}
	if got := r.readAttributes(); !reflect.DeepEqual(got, requestAttributes{{"pmix.timeout", true, "5"}}) {
		t.Errorf("with %v", got)
	}
	if got := r.readBytes(); string(got) != "data" || r.malformed || len(r.rest) > 0 {
		t.Errorf("%q, broken %v, %d left", got, r.malformed, len(r.rest))
	}
	if r.readNumber(); !r.malformed {
		t.Error("it has read beyond the end")
	}
}

func TestReadSpawn(t *testing.T) {
	_, _, r, err := readFrame(bytes.NewReader(written(asks()["spawn"])))
	if err != nil {
		t.Fatal(err)
	}
	got, with, err := decodeSpawn(r)
	want := pmi.SpawnRequest{Requester: pmi.ProcID{Job: "w"}, Commands: []pmi.Command{{
		Argv: []string{"prog", "arg"}, Env: []string{"A=B"}, Dir: "/tmp", Ranks: 4,
		Info: map[string]string{"wdir": "/tmp", "host": "n1"},
	}}}
	if err != nil || r.malformed || !reflect.DeepEqual(got, want) || len(with) != 1 {
		t.Errorf("%+v, %v, %v", got, with, err)
	}
}

func TestSpawnRefuses(t *testing.T) {
	f := newFrame(upSpawn, 1)
	f.addProc(pmi.ProcID{Job: "w"})
	f.addNumber(1)
	f.addText("pmix.mapby")
	f.addByte(1)
	f.addText("node")
	f.addNumber(1)
	f.addText("prog")
	f.addNumber(0)
	f.addNumber(0)
	f.addText("")
	f.addNumber(1)
	f.addNumber(0)
	_, _, r, _ := readFrame(bytes.NewReader(written(f)))
	if _, _, err := decodeSpawn(r); !errors.Is(err, pmi.NotSupported) || r.malformed {
		t.Errorf("what must be heeded, and is not: %v", err)
	}
}

func TestQuery(t *testing.T) {
	jobs := map[string]*pmi.Job{"w": {Name: "w", Nodes: []int{0, 0, 2}, UniverseSize: 9},
		"w-1": {Name: "w-1", Nodes: []int{1}, UniverseSize: 9}}
	s := &Server{registry: registry{jobs: jobs}}
	for name, tc := range map[string]struct {
		key  string
		with requestAttributes
		want any // nil: unknown
	}{
		"all jobs":      {"pmix.qry.ns", nil, "w,w-1"},
		"own size":      {"pmix.job.size", nil, 3},
		"other's size":  {"pmix.job.size", requestAttributes{{"pmix.nspace", false, "w-1"}}, 1},
		"no such job":   {"pmix.job.size", requestAttributes{{"pmix.nspace", false, "x"}}, nil},
		"universe":      {"pmix.univ.size", nil, 9},
		"nodes":         {"pmix.num.nodes", nil, 2},
		"sets":          {"pmix.qry.psetnum", nil, 0},
		"names of sets": {"pmix.qry.psets", nil, ""},
		"nothing":       {"pmix.nothing", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := s.queryValue(tc.key, pmi.ProcID{Job: "w"}, tc.with)
			if known != (tc.want != nil) || known && got.value != tc.want {
				t.Errorf("%v, %v; want %v", got, known, tc.want)
			}
		})
	}
	_, _, r, _ := readFrame(bytes.NewReader(written(asks()["query"])))
	var f frame
	if err := s.decodeQuery(r)(t.Context(), &f); err != nil || r.malformed {
		t.Errorf("one key of two is known: %v", err)
	}
}

func TestTooLong(t *testing.T) {
	s := &Server{}
	if err := s.sendFrame(t.Context(), make(frame, maxFrameSize+1)); !errors.Is(err, pmi.NoSpace) {
		t.Errorf("a frame that is too long: %v", err)
	}
	long := binary.BigEndian.AppendUint32(nil, maxFrameSize+1)
	if _, _, _, err := readFrame(bytes.NewReader(long)); !errors.Is(err, errMalformed) {
		t.Errorf("one that comes: %v", err)
	}
}

// FuzzFrame reads data that no child sends: reading must end, without much memory.
func FuzzFrame(f *testing.F) {
	for _, ask := range asks() {
		f.Add(written(ask))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		op, _, r, err := readFrame(bytes.NewReader(data))
		if err != nil {
			return
		}
		s := &Server{registry: registry{clients: make(map[pmi.ProcID]*clientState), jobs: make(map[string]*pmi.Job)}}
		s.AbortJob = func(pmi.ProcID, int, string) {}
		_, _ = s.decodeRequest(op, r)
	})
}
