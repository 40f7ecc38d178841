package signal

import (
	"context"
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"github.com/bringupd/bringupd/pkg/pause"
)

// hint returns a channel that says "look now" when the kernel saw a name
// appear in the directory, and a function that ends the hints. Only a local
// file system (several daemons on one machine) tells: a mount never hears of
// what other clients did, so none is asked there. A kernel that refuses costs
// time, never correctness.
func hint(ctx context.Context, path string, local bool) (<-chan struct{}, func()) {
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
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		relay(ctx, watcher, hints)
	}()
	return hints, func() {
		stop()
		<-ended
		_ = watcher.Close()
	}
}

// relay turns what the kernel tells into hints. That it could not tell all
// (a queue that was full) is one, too.
func relay(ctx context.Context, watcher *fsnotify.Watcher, hints chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-watcher.Errors:
			if err == nil {
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
