package pmix

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// Operations that the child requests from the daemon. child/child.h defines the same numbers.
const (
	upConnected = 1 + iota
	upFinalized
	upAbort
	upFence
	upModex
	upPublish
	upLookup
	upUnpublish
	upSpawn
	upConnect
	upDisconnect
	upNotify
	upQuery
	upLog
	upDone
	upGroup
)

// Operations that the daemon requests from the child. child/child.h defines the same numbers.
const (
	doInit = 1 + iota
	doAddJob
	doRemoveJob
	doAddClient
	doEnvironment
	doModex
	doEvent
	doAnswer
	doPack
)

// Types of values, numbered as in PMIx's pmix_common.h, and three types of our own protocol: lists
// from which the child's library generates the maps of a job, and arrays of processes.
const (
	typeBool    = 1
	typeString  = 3
	typeSize    = 4
	typeInt     = 6
	typeUint16  = 13
	typeUint32  = 14
	typeProc    = 22
	typeBytes   = 27
	typeArray   = 39
	typeRank    = 40
	typeNodeMap = 0xfff0
	typeRankMap = 0xfff1
	typeProcs   = 0xfff2
)

// wildcard is PMIX_RANK_WILDCARD: all ranks of a job.
const wildcard = 1<<32 - 2

// longestFrame is the maximum size of a frame in bytes. The data that all ranks of a node commit is
// sent in one frame.
const longestFrame = 256 << 20

// longestName is PMIX_MAX_NSLEN, and longestKey is PMIX_MAX_KEYLEN.
const (
	longestName = 255
	longestKey  = 511
)

// mostItems is the maximum length of lists in a rank's request, except lists of processes, which
// may contain all ranks.
const mostItems = 1 << 16

// frame is the content of a frame that is being encoded, without its length.
type frame []byte

// newFrame returns a frame that contains the header with an operation and an ID.
func newFrame(op byte, id uint32) *frame {
	f := make(frame, 0, 64)
	f = append(f, op)
	f = binary.BigEndian.AppendUint32(f, id)
	return &f
}

func (f *frame) byte(v byte)       { *f = append(*f, v) }
func (f *frame) number(v int)      { *f = binary.BigEndian.AppendUint32(*f, uint32(v)) }
func (f *frame) text(v string)     { f.number(len(v)); *f = append(*f, v...) }
func (f *frame) bytes(v []byte)    { f.number(len(v)); *f = append(*f, v...) }
func (f *frame) status(err error)  { f.number(int(statusOf(err))) }
func (f *frame) proc(p pmi.Proc)   { f.text(p.Job); f.number(rankOf(p.Rank)) }
func (f *frame) infos(list []info) { f.number(len(list)); f.each(list) }

// each appends a list of attributes without its length.
func (f *frame) each(list []info) {
	for _, i := range list {
		f.text(i.key)
		f.number(i.kind)
		switch v := i.value.(type) {
		case string:
			f.text(v)
		case int:
			f.number(v)
		case uint64:
			*f = binary.BigEndian.AppendUint64(*f, v)
		case []byte:
			f.bytes(v)
		case bool:
			f.number(map[bool]int{true: 1}[v])
		case pmi.Proc:
			f.proc(v)
		case []pmi.Proc:
			f.number(len(v))
			for _, p := range v {
				f.proc(p)
			}
		case []info:
			f.infos(v)
		}
	}
}

// rankOf converts a rank to PMIx's number.
func rankOf(rank int) int {
	if rank == pmi.All {
		return wildcard
	}
	return rank
}

// statusOf returns the PMIx status of an error.
func statusOf(err error) pmi.Status { return pmi.StatusOf(err) }

// info is an attribute that is passed to the library.
type info struct {
	key   string
	kind  int
	value any // string, int, uint64, []byte, bool, pmi.Proc, []pmi.Proc or a list of attributes, depending on kind
}

// errBroken means that a frame is malformed, or that a list in it is too long.
var errBroken = fmt.Errorf("cannot read what the PMIx server says: a frame is broken: %w", pmi.BadParam)

// reader decodes the fields of a frame. If a field is missing, it returns the zero value and sets
// [reader.broken].
type reader struct {
	left   []byte
	broken bool
}

// take returns the next n bytes.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.broken, r.left = true, nil
		return nil
	}
	taken := r.left[:n:n]
	r.left = r.left[n:]
	return taken
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) number() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// signed reads a signed number, for example a status.
func (r *reader) signed() int    { return int(int32(r.number())) }
func (r *reader) bytes() []byte  { return r.take(int(r.number())) }
func (r *reader) text() string   { return string(r.bytes()) }
func (r *reader) proc() pmi.Proc { return pmi.Proc{Job: r.text(), Rank: r.rank()} }

func (r *reader) rank() int {
	if rank := r.number(); rank != wildcard {
		return int(rank)
	}
	return pmi.All
}

// count reads the length of a list. It sets [reader.broken] and returns 0 if the length exceeds
// most, or the number of items that fit into the rest of the frame.
func (r *reader) count(most int) int {
	n := int(r.number())
	if n > min(most, len(r.left)/4) { // each item begins with a number of 4 bytes
		r.broken = true
		return 0
	}
	return n
}

func (r *reader) procs() (procs []pmi.Proc) {
	for range r.count(pmi.MostRanks) {
		procs = append(procs, r.proc())
	}
	return procs
}

func (r *reader) texts() (texts []string) {
	for range r.count(mostItems) {
		texts = append(texts, r.text())
	}
	return texts
}

// said is an attribute of a rank's request.
type said struct {
	key      string
	required bool // the request must fail if the key is not supported
	value    string
}

// told is a list of attributes of a request.
type told []said

func (r *reader) infos() (infos told) {
	for range r.count(mostItems) {
		infos = append(infos, said{r.text(), r.byte() != 0, r.text()})
	}
	return infos
}

// of returns the value of a key, and whether the key is present.
func (t told) of(key string) (value string, is bool) {
	for _, i := range t {
		if i.key == key {
			return i.value, true
		}
	}
	return "", false
}

// readFrame reads the next frame.
func readFrame(from io.Reader) (op byte, id uint32, r *reader, err error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return 0, 0, nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 5 || n > longestFrame {
		return 0, 0, nil, fmt.Errorf("%w: it has %d bytes", errBroken, n)
	}
	bytes := make([]byte, n)
	if _, err := io.ReadFull(from, bytes); err != nil {
		return 0, 0, nil, err
	}
	r = &reader{left: bytes}
	return r.byte(), r.number(), r, nil
}
