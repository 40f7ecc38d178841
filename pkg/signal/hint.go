package signal

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/bringupd/bringupd/pkg/pause"
)

// hint returns a channel that says "look now" when the kernel saw a name
// appear in the directory, and a function that ends the hints. Only a local
// file system (several daemons on one machine) tells: a mount never hears of
// what other clients did, so none is asked there. A kernel that refuses costs
// time, never correctness.
func hint(path string, local bool) (<-chan struct{}, func()) {
	hints := make(chan struct{}, 1)
	if !local {
		return hints, func() {}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return hints, func() {}
	}
	if err := watcher.Add(path); err != nil {
		_ = watcher.Close()
		return hints, func() {}
	}
	var relaying sync.WaitGroup
	relaying.Go(func() { relay(watcher, hints) })
	return hints, func() {
		_ = watcher.Close()
		relaying.Wait()
	}
}

// relay turns what the kernel tells into hints, until the watcher is closed. That
// it could not tell all (a queue that was full) is one, too.
func relay(watcher *fsnotify.Watcher, hints chan<- struct{}) {
	for {
		select {
		case _, open := <-watcher.Errors:
			if !open {
				return
			}
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			// What happens to temporaries is noise: a record's birth is a rename.
			if !event.Has(fsnotify.Create) || filepath.Base(event.Name)[0] == '.' {
				continue
			}
		}
		pause.Ring(hints)
	}
}
