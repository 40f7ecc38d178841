package gpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// WatchCommand is the subcommand that watches the GPUs of this node.
	WatchCommand = "gpu-watch"

	watchGrace = time.Second // from the end of standard input to ours, where the driver hangs
)

var errUnheard = errors.New("nobody listens any more: standard input has ended")

// WatchMain is the life of the child: it watches the GPUs and writes a line for
// each event to out. It ends when in does, which the parent holds open: the
// parent's end is ours, however it came. It returns the exit code.
func WatchMain(ctx context.Context, library string, in io.Reader, out io.Writer) int {
	if os.Getenv(probeVariable) != "" {
		closeInherited() // a Watch waits, and they are ours
	}
	lib := openEvents(library)
	if lib == nil {
		return sayEnd(out, fmt.Errorf("%s: this bringupd was built without cgo", NoCgo))
	}
	return watchMain(ctx, lib, library, in, out)
}

func watchMain(ctx context.Context, lib eventLibrary, path string, in io.Reader, out io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		// This ends with the process: a read can't be given up.
		_, _ = io.Copy(io.Discard, in)
		cancel(errUnheard)
	}()
	ended := make(chan error, 1)
	go func() { ended <- watchAll(ctx, lib, path, out) }()
	select {
	case err := <-ended:
		return sayEnd(out, err)
	case <-ctx.Done():
	}
	// A call into a driver that hangs can't be given up either.
	grace := time.NewTimer(watchGrace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return sayEnd(out, err)
	case <-grace.C:
		return 1
	}
}

func sayEnd(out io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if text, err := (watchLine{Ended: err.Error()}).encode(); err == nil {
		_, _ = out.Write(text)
	}
	return 1
}

// watchAll is all that calls into the driver.
func watchAll(ctx context.Context, lib eventLibrary, path string, out io.Writer) error {
	if ret := lib.Init(); ret == LibraryNotFound {
		return fmt.Errorf("NVML can't be used: %s: %s", ret, whyNotLoaded(path))
	} else if ret != Success {
		return fmt.Errorf("NVML can't be used: %s", ret)
	}
	defer lib.Shutdown()
	return watch(ctx, lib, func(line watchLine) error {
		text, err := line.encode()
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	})
}
