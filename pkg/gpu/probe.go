package gpu

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// ProbeMain is the life of the child: it asks NVML and writes Facts to out. It
// returns the exit code, which is 0 whatever NVML said.
func ProbeMain(library string, out io.Writer) int {
	if os.Getenv(probeVariable) != "" {
		closeInherited() // by hand it is not left behind
	}
	asked := newQuestions()
	stop := tellWaits(asked, os.Stderr, time.Second)
	facts := probe(library, asked)
	stop()
	text, err := json.Marshal(facts)
	if err == nil {
		_, err = out.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot tell of the GPUs: %v\n", err)
		return 1
	}
	return 0
}

// probe asks the library at path, or the one that the loader finds.
func probe(path string, asked *questions) Facts {
	lib := openLibrary(path)
	if lib == nil {
		return Facts{Version: FactsVersion, Init: NoCgo, Library: path}
	}
	c := collector{lib: lib, root: "/", asked: asked, pause: time.Sleep}
	facts := c.collect()
	facts.Library = path
	if facts.Init == LibraryNotFound {
		facts.Detail = whyNotLoaded(path)
	}
	return facts
}

// tellWaits says which questions have not been answered for that long, once
// for each change: who ends this process for its silence finds it in its last
// words.
func tellWaits(asked *questions, to io.Writer, after time.Duration) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(after)
		defer tick.Stop()
		for last := ""; ; {
			select {
			case <-tick.C:
				if text := asked.String(); text != "" && text != last {
					fmt.Fprintf(to, "waiting for %s\n", text)
					last = text
				}
			case <-over:
				return
			}
		}
	}()
	return func() {
		close(over)
		<-done
	}
}
