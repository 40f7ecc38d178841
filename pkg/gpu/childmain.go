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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// childGracePeriod is how long the child waits, after the end of its standard input, for calls that
// have not returned. If it ended while the driver initialises a GPU, that GPU would need a reset.
const childGracePeriod = DefaultProbeTimeout

// deviceLibrary is the part of the child that calls the libraries: NVML and CUDA.
type deviceLibrary interface {
	// inspectGPUs inspects all GPUs, and sends lines with the progress.
	inspectGPUs(tell func(message)) Facts
	// watchEvents sends the GPUs' events until the context ends. It returns an error if it cannot
	// continue.
	watchEvents(ctx context.Context, what request, tell func(message)) error
	// inspectCUDA queries the CUDA driver.
	inspectCUDA() CUDAFacts
}

// ChildMain is the main function of the child: it reads requests, one per line, from in, and writes
// the answers as lines to out. It returns when in ends. The parent keeps in open, so the child ends
// when its parent does, whatever the reason. It returns the exit code, which is 0 unless the child
// could not continue.
func ChildMain(in io.Reader, out io.Writer) int {
	if os.Getenv(childEnvVariable) != "" {
		process.CloseInheritedFiles(2)
	} else {
		// A user has started it by hand. Signals are not handled here, so their default actions let the
		// user end it.
		signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	}
	return serveRequests(openLibrary(), in, out)
}

var errInputEnded = errors.New("standard input was closed")

// serveRequests answers the requests in in until in ends or out fails, and returns the exit code.
// Each request has a goroutine of its own.
func serveRequests(d deviceLibrary, in io.Reader, out io.Writer) int {
	outputCtx, outputFailed := context.WithCancelCause(context.Background())
	defer outputFailed(nil)
	var mu sync.Mutex
	tell := func(l message) {
		mu.Lock()
		defer mu.Unlock()
		if _, err := out.Write(l.encodeLine()); err != nil {
			outputFailed(err)
		}
	}
	// The context ends with the reason: in has ended, a request is invalid, or out has failed.
	answering, ctx := errgroup.WithContext(outputCtx)
	// ends with the process at the latest, because a read cannot be interrupted
	answering.Go(func() error {
		for questions := bufio.NewScanner(in); questions.Scan(); {
			text := bytes.Clone(questions.Bytes())
			answering.Go(func() error { return answerRequest(ctx, d, text, tell) })
		}
		return errInputEnded
	})
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errInputEnded) {
		tell(message{EndReason: err.Error()})
		return 1
	}
	// Requests that are being answered have until childGracePeriod is over. A call to a driver that
	// hangs cannot be interrupted either.
	wait := func() (any, error) { return nil, answering.Wait() }
	if _, err := ctxutil.CallBounded(ctx, childGracePeriod, wait); errors.Is(err, ctxutil.ErrAbandoned) {
		return 1
	}
	return 0
}

// answerRequest answers one request. All lines of the answer have the number of the request. It
// returns an error if the request is invalid.
func answerRequest(ctx context.Context, d deviceLibrary, text []byte, tell func(message)) error {
	l, err := decodeMessage(text)
	if err != nil {
		return err
	}
	answer := func(a message) {
		a.Number = l.Number
		tell(a)
	}
	switch l.Request {
	case requestInspection:
		facts := d.inspectGPUs(answer)
		answer(message{Facts: &facts})
		return nil
	case requestCUDA:
		facts := d.inspectCUDA()
		answer(message{CUDA: &facts})
		return nil
	case requestWatch, requestResume:
		if err := d.watchEvents(ctx, l.Request, answer); err != nil {
			// the child can still inspect the GPUs, and keeps them initialised
			answer(message{EndReason: err.Error()})
		}
		return nil
	default:
		return fmt.Errorf("cannot answer the unknown request %q", text)
	}
}
