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

// childGrace is how long the child waits, after the end of its standard input, for calls that have
// not returned. If it ended while the driver initialises a GPU, that GPU would need a reset.
const childGrace = ProbeDeadline

// driver is the part of the child that calls the libraries: NVML and CUDA.
type driver interface {
	// look inspects all GPUs, and sends lines with the progress.
	look(tell func(line)) Facts
	// watch sends the GPUs' events until the context ends. It returns an error if it cannot continue.
	watch(ctx context.Context, what question, tell func(line)) error
	// cuda queries the CUDA driver.
	cuda() cuda.Facts
}

// ChildMain is the main function of the child: it reads requests, one per line, from in, and writes
// the answers as lines to out. It returns when in ends. The parent keeps in open, so the child ends
// when its parent does, whatever the reason. It returns the exit code, which is 0 unless the child
// could not continue.
func ChildMain(library string, in io.Reader, out io.Writer) int {
	if os.Getenv(childVariable) != "" {
		process.CloseInherited(2)
	} else {
		// A user has started it by hand. Signals are not handled here, so their default actions let the
		// user end it.
		signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	}
	return serve(openDriver(library), in, out)
}

var errUnheard = errors.New("nobody listens any more: standard input has ended")

// serve answers the requests in in until in ends or out fails, and returns the exit code. Each
// request has a goroutine of its own.
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
	// The context ends with the reason: in has ended, a request is invalid, or out has failed.
	answering, ctx := errgroup.WithContext(deaf)
	answering.Go(func() error { // ends with the process at the latest, because a read cannot be interrupted
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
	// Requests that are being answered have until childGrace is over. A call to a driver that hangs
	// cannot be interrupted either.
	if _, err := pause.Bounded(ctx, childGrace, func() (any, error) { return nil, answering.Wait() }); errors.Is(err, pause.ErrHangs) {
		return 1
	}
	return 0
}

// answer answers one request. All lines of the answer have the number of the request. It returns an
// error if the request is invalid.
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
			answer(line{Ended: err.Error()}) // the child can still inspect the GPUs, and keeps them initialised
		}
		return nil
	default:
		return fmt.Errorf("nobody can answer %q", text)
	}
}
