package gpu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

// childGrace is how long the child waits for a hanging driver after the end of its standard input.
const childGrace = time.Second

// driver is what the child asks: NVML.
type driver interface {
	// look takes a look at all GPUs.
	look() Facts
	// watch tells of the GPUs' events until the context ends. The error says why it can't go on.
	watch(ctx context.Context, tell func(line)) error
}

// ChildMain is what the child runs: it reads questions, one a line, from in, and writes the answers as lines to out. It
// returns when in ends: the parent holds that open, so the child ends with its parent, whatever ended it. It returns
// the exit code, which is 0 unless it could not go on.
func ChildMain(library string, in io.Reader, out io.Writer) int {
	if os.Getenv(childVariable) != "" {
		process.CloseInherited(2)
	} else {
		// Somebody has started it by hand, and must be able to end it: nothing here handles signals.
		signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	}
	return serve(openDriver(library), in, out)
}

var errUnheard = errors.New("nobody listens any more: standard input has ended")

func serve(d driver, in io.Reader, out io.Writer) int {
	deaf, unheard := context.WithCancelCause(context.Background())
	defer unheard(nil)
	var mu sync.Mutex
	tell := func(l line) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := out.Write(l.encode()); err != nil {
			unheard(err)
		}
	}
	answering, ctx := errgroup.WithContext(deaf)
	answering.Go(func() error { // it ends with the process at the latest: a read can't be interrupted
		for questions := bufio.NewScanner(in); questions.Scan(); {
			text := bytes.Clone(questions.Bytes())
			answering.Go(func() error { return answer(ctx, d, text, tell) })
		}
		return errUnheard
	})
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errUnheard) {
		tell(line{Ended: err.Error()})
		return 1
	}
	// A call into a driver that hangs can't be interrupted either.
	if _, err := pause.Bounded(ctx, childGrace, func() (any, error) { return nil, answering.Wait() }); errors.Is(err, pause.ErrHangs) {
		return 1
	}
	return 0
}

// answer answers a question. The error says why the child can't go on.
func answer(ctx context.Context, d driver, text []byte, tell func(line)) error {
	l, err := decodeLine(text)
	switch {
	case err != nil:
		return err
	case l.Ask == askLook:
		facts := d.look()
		tell(line{Facts: &facts})
		return nil
	case l.Ask == askWatch:
		return d.watch(ctx, tell)
	default:
		return fmt.Errorf("nobody can answer %q", text)
	}
}
