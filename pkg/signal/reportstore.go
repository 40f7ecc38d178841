package signal

import (
	"slices"
	"sync"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// reportStore has the names that nodes have reported by their peer links, with their contents, until
// a listing of the run directory shows them. Its methods are safe for concurrent use. A nil store
// never has any.
type reportStore struct {
	arrived chan struct{} // buffered by one

	mu       sync.Mutex
	contents map[string][]byte // keyed by name; guarded by mu
}

func newReportStore() *reportStore {
	return &reportStore{arrived: make(chan struct{}, 1), contents: make(map[string][]byte)}
}

// add adds a name with its content, which the caller must not change any more.
func (s *reportStore) add(name string, content []byte) {
	s.mu.Lock()
	s.contents[name] = content
	s.mu.Unlock()
	ctxutil.NotifyChannel(s.arrived)
}

// arrivedNames returns a channel that receives after names were added.
func (s *reportStore) arrivedNames() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.arrived
}

// addTo returns the names of a listing together with those that were reported and are not among
// them. It forgets the others: their contents are read from the directory then.
func (s *reportStore) addTo(listed []string) []string {
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

// content returns the content of a name that was reported, and that no listing has shown yet.
func (s *reportStore) content(name string) (data []byte, ok bool) {
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok = s.contents[name]
	return data, ok
}
