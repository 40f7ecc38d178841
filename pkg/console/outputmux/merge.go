package outputmux

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	// mergeWindow is how long a line waits for other ranks that print the same line.
	mergeWindow = 200 * time.Millisecond
	// mergeLimit bounds the waiting lines, in bytes. If it is exceeded, the oldest lines are shown at
	// once.
	mergeLimit = 1 << 20
)

// lineMerger combines identical lines of several ranks into one. The lines of each rank stay in
// order. It is safe for concurrent use.
type lineMerger struct {
	sink *fileSink
	host string // host name in the tag of each line; empty: none

	mu           sync.Mutex
	queue        []*mergedLine            // waiting lines, in the order in which they will be shown
	byText       map[string][]*mergedLine // lines of queue, by text
	lastPosition map[int]int              // sequence number of each rank's last line
	newest       int                      // sequence number of the newest line
	queueSize    int                      // total length of queue, in bytes
	timer        *time.Timer              // runs while queue is not empty
	err          error                    // last error of the sink
}

// mergedLine is a line and the ranks that have printed it.
type mergedLine struct {
	text     string
	position int
	ranks    []int
	deadline time.Time // when it must be shown
}

func newLineMerger(to *fileSink, host string) *lineMerger {
	m := &lineMerger{sink: to, host: host, byText: make(map[string][]*mergedLine), lastPosition: make(map[int]int)}
	m.timer = time.AfterFunc(mergeWindow, m.showDue)
	m.timer.Stop()
	return m
}

// addLine accepts a line of a rank, including its newline. A line longer than mergeLimit is shown
// at once, after all earlier ones.
func (m *lineMerger) addLine(rank int, line []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Add the rank to a waiting line with the same text, unless it has printed a later line since.
	alike := m.byText[string(line)]
	i := sort.Search(len(alike), func(i int) bool { return alike[i].position > m.lastPosition[rank] })
	if i < len(alike) {
		alike[i].ranks = append(alike[i].ranks, rank)
		m.lastPosition[rank] = alike[i].position
		return m.err
	}
	m.newest++
	e := &mergedLine{text: string(line), position: m.newest, ranks: []int{rank}, deadline: time.Now().Add(mergeWindow)}
	m.lastPosition[rank] = e.position
	if len(m.queue) == 0 {
		m.timer.Reset(mergeWindow)
	}
	m.queue, m.byText[e.text] = append(m.queue, e), append(m.byText[e.text], e)
	for m.queueSize += len(e.text); m.queueSize > mergeLimit; {
		m.showFirst()
	}
	return m.err
}

// showFirst passes on the first line of the queue. The caller holds mu.
func (m *lineMerger) showFirst() {
	e := m.queue[0]
	m.queue[0], m.queue = nil, m.queue[1:]
	m.queueSize -= len(e.text)
	if m.byText[e.text] = m.byText[e.text][1:]; len(m.byText[e.text]) == 0 {
		delete(m.byText, e.text)
	}
	sort.Ints(e.ranks)
	tag := "[" + textutil.FormatRanges(e.ranks)
	if m.host != "" {
		tag += " " + m.host
	}
	m.err = m.sink.addOutput(e.ranks[0], fmt.Appendf(nil, "%s] %s", tag, e.text))
}

// showDue shows the lines that have waited for mergeWindow.
func (m *lineMerger) showDue() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) > 0 {
		if left := time.Until(m.queue[0].deadline); left > 0 {
			m.timer.Reset(left)
			return
		}
		m.showFirst()
	}
}

// showAll shows all remaining lines.
func (m *lineMerger) showAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.timer.Stop()
	for len(m.queue) > 0 {
		m.showFirst()
	}
}
