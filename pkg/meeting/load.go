package meeting

import "sync"

// Load counts what programs have sent and a node still keeps. Its methods may be called at the same
// time.
type Load struct {
	mu           sync.Mutex
	items, bytes int
}

// Take counts one item of some bytes, if there are no more than the most of both then. It reports
// whether it has.
func (l *Load) Take(bytes, mostItems, mostBytes int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.items >= mostItems || bytes > mostBytes-l.bytes {
		return false
	}
	l.items++
	l.bytes += bytes
	return true
}

// Give counts items that are kept no longer.
func (l *Load) Give(items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items -= items
	l.bytes -= bytes
}
