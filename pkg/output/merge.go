package output

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	// mergeWindow is how long a line waits for other ranks that print the same.
	mergeWindow = 200 * time.Millisecond
	// mergeLimit is how much waits so, in bytes: what is over it waits no longer.
	mergeLimit = 1 << 20
)

// merger shows lines once that several ranks print alike. Each rank's lines stay in
// their order. It is safe for concurrent use.
type merger struct {
	to   *sink
	host string // in each line's tag, where it is told

	mu    sync.Mutex
	queue []*shared            // in the order in which they are shown
	texts map[string][]*shared // those of the queue, by what they say
	last  map[int]int          // the place of a rank's last line
	next  int                  // the place of the next line
	size  int                  // of the queue, in bytes
	timer *time.Timer          // runs where the queue is not empty
	err   error                // what the sink has said
}

// shared is a line, and whose it is.
type shared struct {
	text  string
	place int
	ranks []int
	until time.Time // when it is shown
}

func newMerger(to *sink, host string) *merger {
	m := &merger{to: to, host: host, texts: make(map[string][]*shared), last: make(map[int]int)}
	m.timer = time.AfterFunc(mergeWindow, m.due)
	m.timer.Stop()
	return m
}

// add takes a line of a rank, with its newline. A longer one than waits for others is
// shown at once, after all that came before it.
func (m *merger) add(rank int, line []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.join(rank, string(line)) {
		return m.err
	}
	m.next++
	e := &shared{text: string(line), place: m.next, ranks: []int{rank}, until: time.Now().Add(mergeWindow)}
	m.last[rank] = e.place
	if len(m.queue) == 0 {
		m.timer.Reset(mergeWindow)
	}
	m.queue, m.texts[e.text] = append(m.queue, e), append(m.texts[e.text], e)
	for m.size += len(e.text); m.size > mergeLimit; {
		m.show()
	}
	return m.err
}

// join makes a line that waits the rank's, too, where all that the rank has printed
// stands before it. It needs mu.
func (m *merger) join(rank int, text string) bool {
	alike := m.texts[text]
	i := sort.Search(len(alike), func(i int) bool { return alike[i].place > m.last[rank] })
	if i == len(alike) {
		return false
	}
	alike[i].ranks = append(alike[i].ranks, rank)
	m.last[rank] = alike[i].place
	return true
}

// show passes the first line on. It needs mu.
func (m *merger) show() {
	e := m.queue[0]
	m.queue[0], m.queue = nil, m.queue[1:]
	m.size -= len(e.text)
	if m.texts[e.text] = m.texts[e.text][1:]; len(m.texts[e.text]) == 0 {
		delete(m.texts, e.text)
	}
	sort.Ints(e.ranks)
	tag := "[" + prose.Ranges(e.ranks)
	if m.host != "" {
		tag += " " + m.host
	}
	m.err = m.to.add(e.ranks[0], fmt.Appendf(nil, "%s] %s", tag, e.text))
}

// due shows what has waited for as long as it may.
func (m *merger) due() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) > 0 {
		if left := time.Until(m.queue[0].until); left > 0 {
			m.timer.Reset(left)
			return
		}
		m.show()
	}
}

// close shows what is left.
func (m *merger) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer.Stop()
	for len(m.queue) > 0 {
		m.show()
	}
}
