package pmix

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
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

// wildcardRank is PMIX_RANK_WILDCARD: all ranks of a job.
const wildcardRank = 1<<32 - 2

// maxFrameSize is the maximum size of a frame in bytes. The data that all ranks of a node commit is
// sent in one frame.
const maxFrameSize = 256 << 20

// maxNamespaceLength is PMIX_MAX_NSLEN, and maxKeyLength is PMIX_MAX_KEYLEN.
const (
	maxNamespaceLength = 255
	maxKeyLength       = 511
)

// maxItems is the maximum length of lists in a rank's request, except lists of processes, which
// may contain all ranks.
const maxItems = 1 << 16

// frame is the content of a frame that is being encoded, without its length.
type frame []byte

func newFrame(op byte, id uint32) *frame {
	f := make(frame, 0, 64)
	f = append(f, op)
	f = binary.BigEndian.AppendUint32(f, id)
	return &f
}

func (f *frame) addByte(v byte)                 { *f = append(*f, v) }
func (f *frame) addNumber(v int)                { *f = binary.BigEndian.AppendUint32(*f, uint32(v)) }
func (f *frame) addText(v string)               { f.addNumber(len(v)); *f = append(*f, v...) }
func (f *frame) addBytes(v []byte)              { f.addNumber(len(v)); *f = append(*f, v...) }
func (f *frame) addStatus(err error)            { f.addNumber(int(pmi.StatusOf(err))) }
func (f *frame) addProc(p pmi.ProcID)           { f.addText(p.Job); f.addNumber(pmixRank(p.Rank)) }
func (f *frame) addAttributes(list []attribute) { f.addNumber(len(list)); f.addAttributeItems(list) }

// addAttributeItems appends a list of attributes without its length.
func (f *frame) addAttributeItems(list []attribute) {
	for _, i := range list {
		f.addText(i.key)
		f.addNumber(i.kind)
		switch v := i.value.(type) {
		case string:
			f.addText(v)
		case int:
			f.addNumber(v)
		case uint64:
			*f = binary.BigEndian.AppendUint64(*f, v)
		case []byte:
			f.addBytes(v)
		case bool:
			f.addNumber(map[bool]int{true: 1}[v])
		case pmi.ProcID:
			f.addProc(v)
		case []pmi.ProcID:
			f.addNumber(len(v))
			for _, p := range v {
				f.addProc(p)
			}
		case []attribute:
			f.addAttributes(v)
		}
	}
}

func pmixRank(rank int) int {
	if rank == pmi.AllRanks {
		return wildcardRank
	}
	return rank
}

type attribute struct {
	key  string
	kind int
	// string, int, uint64, []byte, bool, pmi.ProcID, []pmi.ProcID or a list of attributes, depending
	// on kind
	value any
}

// errMalformed means that a frame is malformed, or that a list in it is too long.
var errMalformed = fmt.Errorf("cannot read a message of the PMIx server: it is malformed: %w", pmi.BadParam)

// frameReader decodes the fields of a frame. If a field is missing, it returns the zero value and
// sets [frameReader.malformed].
type frameReader struct {
	rest      []byte
	malformed bool
}

func (r *frameReader) takeBytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.malformed, r.rest = true, nil
		return nil
	}
	taken := r.rest[:n:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *frameReader) readByte() byte {
	if b := r.takeBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *frameReader) readNumber() uint32 {
	if b := r.takeBytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// readSigned reads a signed number, for example a status.
func (r *frameReader) readSigned() int      { return int(int32(r.readNumber())) }
func (r *frameReader) readBytes() []byte    { return r.takeBytes(int(r.readNumber())) }
func (r *frameReader) readText() string     { return string(r.readBytes()) }
func (r *frameReader) readProc() pmi.ProcID { return pmi.ProcID{Job: r.readText(), Rank: r.readRank()} }

func (r *frameReader) readRank() int {
	if rank := r.readNumber(); rank != wildcardRank {
		return int(rank)
	}
	return pmi.AllRanks
}

// readCount reads the length of a list. It sets [frameReader.malformed] and returns 0 if the length
// exceeds maxCount, or the number of items that fit into the rest of the frame.
func (r *frameReader) readCount(maxCount int) int {
	n := int(r.readNumber())
	if n > min(maxCount, len(r.rest)/4) { // each item begins with a number of 4 bytes
		r.malformed = true
		return 0
	}
	return n
}

func (r *frameReader) readProcs() (procs []pmi.ProcID) {
	for range r.readCount(pmi.MaxRanks) {
		procs = append(procs, r.readProc())
	}
	return procs
}

func (r *frameReader) readTexts() (texts []string) {
	for range r.readCount(maxItems) {
		texts = append(texts, r.readText())
	}
	return texts
}

type requestAttribute struct {
	key      string
	required bool // the request must fail if the key is not supported
	value    string
}

type requestAttributes []requestAttribute

func (r *frameReader) readAttributes() (infos requestAttributes) {
	for range r.readCount(maxItems) {
		infos = append(infos, requestAttribute{r.readText(), r.readByte() != 0, r.readText()})
	}
	return infos
}

func (t requestAttributes) lookupKey(key string) (value string, is bool) {
	for _, i := range t {
		if i.key == key {
			return i.value, true
		}
	}
	return "", false
}

func readFrame(from io.Reader) (op byte, id uint32, r *frameReader, err error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return 0, 0, nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 5 || n > maxFrameSize {
		return 0, 0, nil, fmt.Errorf("%w: it has %d bytes", errMalformed, n)
	}
	bytes := make([]byte, n)
	if _, err := io.ReadFull(from, bytes); err != nil {
		return 0, 0, nil, err
	}
	r = &frameReader{rest: bytes}
	return r.readByte(), r.readNumber(), r, nil
}
