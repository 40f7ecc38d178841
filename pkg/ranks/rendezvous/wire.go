package rendezvous

import (
	"bufio"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Kinds of messages. Requests of a node are numbered, and are sent again on each new connection
// until they are answered.
const (
	kindHello             = "hello"  // node: opens a connection; Seqs are the unanswered requests
	kindEnter             = "enter"  // node: all local ranks have entered; answered by the release
	kindGet               = "get"    // node: answered when the value is available or never will be
	kindPush              = "push"   // node: values that the head requested
	kindRankEnded         = "ended"  // node: a rank ended; with all values that it committed
	kindQueryMissing      = "who"    // node: query for the missing ranks of a fence or a get
	kindLocalMissing      = "here"   // node: the local missing ranks
	kindCall              = "call"   // node: request to execute the operation Name
	kindOrderDone         = "done"   // node: the result of an order
	kindAnswer            = "answer" // head: the answer to the request Seq
	kindRequestPush       = "want"   // head: push this value as soon as it is committed
	kindQueryLocalMissing = "census" // head: query for the missing ranks of this node
	kindOrder             = "order"  // head: request to execute the operation Name
)

// valueKey identifies a value by its key and owner. The owner is a rank's number, or "n" and a
// node's number, or empty for any owner.
type valueKey struct {
	Key   string
	Owner string
}

type entry struct {
	Slot  valueKey
	Value []byte
}

// message is a message between a node and the head, in either direction, sent as a gob. Fields that
// are not commented have the meaning that its kind gives them.
type message struct {
	Kind string
	Seq  uint64
	// kindHello: unanswered requests; else: answers received
	Seqs []uint64
	Name string
	FenceFields
	Slot    valueKey
	Entries []entry
	RankFields
	Text    string
	Error   string
	Invalid bool // the error is an invalid request
	Data    []byte
}

// FenceFields are the fields of messages about a fence. (Gob omits embedded types that are not
// exported.)
type FenceFields struct {
	Number  int    // round of a fence, or number of an order
	Group   string // fence's group, from Group.Ranks
	Collect bool   // every node receives the data of all, however large
	Warning int    // query: log the Nth warning of this fence; 0: none
}

// RankFields are the fields of messages about ranks.
type RankFields struct {
	Rank    int
	Ranks   []int
	Entered map[string]int // number of entries of the ended rank into each fence
}

const (
	// maxDataSize limits the values of a node, and the data of a fence, in bytes.
	maxDataSize = 1 << 30
	// maxBroadcastSize limits the data of a fence that is sent to the nodes although none of them
	// needs all of it, in bytes for all nodes together: 8 MB to each of 1,024 nodes would keep the
	// head busy for seconds.
	maxBroadcastSize = 256 << 20
)

// exchangeMessages passes the messages that a connection receives to handle, and sends those that next
// returns at first and after each value of wake, until the connection breaks or ctx ends. It closes the
// connection.
func exchangeMessages(
	ctx context.Context, conn io.ReadWriteCloser, wake <-chan struct{}, next func() []*message, handle func(*message),
) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var writing sync.WaitGroup
	writing.Go(func() {
		defer cancel()
		sendMessages(ctx, conn, wake, next)
	})
	in := bufio.NewReader(conn)
	from := gob.NewDecoder(in)
	for {
		m := new(message)
		if from.Decode(m) != nil {
			break
		}
		if m.isLarge() {
			from = gob.NewDecoder(in)
		}
		handle(m)
	}
	cancel()
	stop()
	_ = conn.Close()
	writing.Wait()
}

// sendMessages sends the messages that next returns, until ctx ends or a write fails.
func sendMessages(ctx context.Context, conn io.Writer, wake <-chan struct{}, next func() []*message) {
	out := bufio.NewWriter(conn)
	to := gob.NewEncoder(out)
	for {
		queue := next()
		for _, m := range queue {
			if to.Encode(m) != nil {
				return
			}
			if m.isLarge() {
				to = gob.NewEncoder(out)
			}
		}
		if out.Flush() != nil || len(queue) == 0 && !awaitSignal(ctx, wake) {
			return
		}
	}
}

// isLarge reports whether a message is larger than 64 KiB. An encoder or decoder keeps a buffer for
// its largest message, so both sides of a connection replace theirs after a large one.
func (m *message) isLarge() bool {
	size := len(m.Data)
	for i := range m.Entries {
		size += len(m.Entries[i].Value)
	}
	return size > 64<<10
}

func validateKey(key string) error {
	if len(key) == 0 || len(key) > MaxKeyLength {
		return fmt.Errorf("cannot use a key of %d bytes: 1 to %d are accepted", len(key), MaxKeyLength)
	}
	if at := strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }); at >= 0 {
		return fmt.Errorf("cannot use the key %q: byte %d is not printable ASCII without spaces", key, at)
	}
	return nil
}

// awaitSignal waits until a value can be received from bell, or until ctx ends. It reports whether
// it received one.
func awaitSignal(ctx context.Context, bell <-chan struct{}) bool {
	select {
	case <-bell:
		return true
	case <-ctx.Done():
		return false
	}
}
