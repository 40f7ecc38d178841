package meeting

import "sync"

// Load limits how many items of programs a node holds, and how many bytes they have. Its methods
// are safe for concurrent use.
type Load struct {
	mu           sync.Mutex
	items, bytes int
}

// Take reserves one item of some bytes. It returns false, and reserves nothing, if one of the
// limits would be exceeded.
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

// Give releases reserved items.
func (l *Load) Give(items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items -= items
	l.bytes -= bytes
}
