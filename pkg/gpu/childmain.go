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

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

// childGrace is how long the child waits, after the end of its standard input, for calls that have not returned: its
// end in the middle of one that attaches a GPU would leave that in need of a reset.
const childGrace = ProbeDeadline

// driver is what the child asks: NVML.
type driver interface {
	// look takes a look at all GPUs, and tells how far it has got.
	look(tell func(line)) Facts
	// watch tells of the GPUs' events until the context ends. The error says why it can't go on.
	watch(ctx context.Context, what question, tell func(line)) error
	// cuda asks CUDA's driver.
	cuda() cuda.Facts
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

// answer answers a question. The error is of one that can't be understood.
func answer(ctx context.Context, d driver, text []byte, tell func(line)) error {
	l, err := decodeLine(text)
	if err != nil {
		return err
	}
	answer := func(a line) {
		a.Number = l.Number
		tell(a)
	}
	switch l.Ask {
	case askLook:
		facts := d.look(answer)
		answer(line{Facts: &facts})
		return nil
	case askCUDA:
		facts := d.cuda()
		answer(line{CUDA: &facts})
		return nil
	case askWatch, askResume:
		if err := d.watch(ctx, l.Ask, answer); err != nil {
			answer(line{Ended: err.Error()}) // it can still be asked for a look, and keeps the GPUs attached
		}
		return nil
	default:
		return fmt.Errorf("nobody can answer %q", text)
	}
}
