package output

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	// mergeWindow is how long a line waits for other ranks that print the same line.
	mergeWindow = 200 * time.Millisecond
	// mergeLimit bounds the waiting lines, in bytes. If it is exceeded, the oldest lines are shown at
	// once.
	mergeLimit = 1 << 20
)

// merger combines identical lines of several ranks into one. The lines of each rank stay in order.
// It is safe for concurrent use.
type merger struct {
	to   *sink
	host string // host name in the tag of each line; empty: none

	mu    sync.Mutex
	queue []*shared            // waiting lines, in the order in which they will be shown
	texts map[string][]*shared // lines of queue, by text
	last  map[int]int          // sequence number of each rank's last line
	next  int                  // sequence number of the newest line
	size  int                  // total length of queue, in bytes
	timer *time.Timer          // runs while queue is not empty
	err   error                // last error of the sink
}

// shared is a line and the ranks that have printed it.
type shared struct {
	text  string
	place int
	ranks []int
	until time.Time // when it must be shown
}

func newMerger(to *sink, host string) *merger {
	m := &merger{to: to, host: host, texts: make(map[string][]*shared), last: make(map[int]int)}
	m.timer = time.AfterFunc(mergeWindow, m.due)
	m.timer.Stop()
	return m
}

// add accepts a line of a rank, including its newline. A line longer than mergeLimit is shown at
// once, after all earlier ones.
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

// join adds the rank to a waiting line with the same text, unless the rank has printed a later line
// since. It reports whether it found such a line. The caller holds mu.
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

// show passes on the first line of the queue. The caller holds mu.
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

// due shows the lines that have waited for mergeWindow.
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

// close shows all remaining lines.
func (m *merger) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer.Stop()
	for len(m.queue) > 0 {
		m.show()
	}
}
