// Package reports keeps what nodes have reported to the head by their peer links, until a listing
// of the run directory shows it.
package reports

import (
	"slices"
	"sync"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Store has the names that were reported, with their contents. Its methods are safe for concurrent
// use. A nil Store never has any.
type Store struct {
	arrived chan struct{} // buffered by one

	mu       sync.Mutex
	contents map[string][]byte // by name; guarded by mu
}

// NewStore returns a store without names.
func NewStore() *Store {
	return &Store{arrived: make(chan struct{}, 1), contents: make(map[string][]byte)}
}

// Add adds a name with its content, which the caller must not change any more.
func (s *Store) Add(name string, content []byte) {
	s.mu.Lock()
	s.contents[name] = content
	s.mu.Unlock()
	ctxutil.NotifyChannel(s.arrived)
}

// Arrived returns a channel that receives after names were added.
func (s *Store) Arrived() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.arrived
}

// AddTo returns the names of a listing together with those that were reported and are not among
// them. It forgets the others: their contents are read from the directory then.
func (s *Store) AddTo(listed []string) []string {
	if s == nil {
		return listed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.contents) == 0 {
		return listed
	}
	for _, name := range listed {
		delete(s.contents, name)
	}
	all := slices.Clip(listed)
	for name := range s.contents {
		all = append(all, name)
	}
	return all
}

// Content returns the content of a name that was reported, and that no listing has shown yet.
func (s *Store) Content(name string) (content []byte, ok bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok = s.contents[name]
	return content, ok
}
