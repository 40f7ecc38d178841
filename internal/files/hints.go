package files

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// WatchNames returns a channel that receives a value when the kernel has seen a name appear in the
// directory, and a function that ends the hints. If local is false, the channel receives nothing:
// hints work only on a local file system (several daemons on one machine), because a mount never
// reports changes by other clients. If the kernel refuses the watch, changes are seen later, by
// polls, but the result is the same.
func WatchNames(path string, local bool) (<-chan struct{}, func()) {
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
	relaying.Go(func() { relayEvents(watcher, hints) })
	return hints, func() {
		_ = watcher.Close()
		relaying.Wait()
	}
}

// relayEvents converts the kernel's events to hints until the watcher is closed. An overflow of the
// event queue is also a hint.
func relayEvents(watcher *fsnotify.Watcher, hints chan<- struct{}) {
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
			// Events of temporaries are ignored: a record appears by a rename.
			if !event.Has(fsnotify.Create) || filepath.Base(event.Name)[0] == '.' {
				continue
			}
		}
		ctxutil.NotifyChannel(hints)
	}
}
