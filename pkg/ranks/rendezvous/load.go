package rendezvous

import "sync"

// Quota limits how many items of programs a node holds, and how many bytes they have. Its methods
// are safe for concurrent use.
type Quota struct {
	mu           sync.Mutex
	items, bytes int
}

// Reserve reserves one item of some bytes. It returns false, and reserves nothing, if one of the
// limits would be exceeded.
func (l *Quota) Reserve(bytes, mostItems, mostBytes int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.items >= mostItems || bytes > mostBytes-l.bytes {
		return false
	}
	l.items++
	l.bytes += bytes
	return true
}

// Release releases reserved items.
func (l *Quota) Release(items, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items -= items
	l.bytes -= bytes
}
