package dask

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/prose"
)

// mostGaps is the maximum number of missing workers in an error.
const mostGaps = 8

// worker is an expected worker, or one as listed by the scheduler.
type worker struct {
	Name      string
	Address   string
	Status    string             // as listed: "running" if it gets work
	Threads   int                // as expected: 0 if Dask decides
	Resources map[string]float64 // as expected: the minimum of each
}

// wants returns the worker that Dask starts with these flags.
func wants(name string, flags framework.Arguments) worker {
	want := worker{Name: name, Resources: map[string]float64{}}
	threads, _ := flags.Value("--nthreads")
	want.Threads, _ = strconv.Atoi(threads) // Dask reports invalid values
	resources, _ := flags.Value("--resources")
	for pair := range strings.FieldsSeq(strings.ReplaceAll(resources, ",", " ")) {
		name, text, _ := strings.Cut(pair, "=")
		if amount, err := strconv.ParseFloat(text, 64); err == nil {
			want.Resources[name] = amount
		}
	}
	return want
}

// compareOwn returns nil if the workers of a node are listed with their expected properties.
// Otherwise the error names what is missing.
func compareOwn(wanted, counted []worker) error {
	var gaps []string
	for _, want := range wanted {
		if gap := gapOf(want, counted); gap != "" {
			gaps = append(gaps, "the worker "+want.Name+" "+gap)
		}
	}
	return missing(gaps)
}

// compareFleet returns nil if all workers of the members are listed, and no others. Otherwise the
// error names the missing workers, in the order of the nodes, and unexpected ones last. Each node
// has verified the properties of its own workers.
func compareFleet(attempt string, members []framework.Member, perNode int, counted []worker) error {
	var gaps []string
	ours := make(map[string]bool)
	for _, member := range members {
		for _, name := range workerNames(framework.NodeName(attempt, member.Rank), perNode) {
			ours[name] = true
			if gap := gapOf(worker{Name: name}, counted); gap != "" {
				gaps = append(gaps, fmt.Sprintf("rank %d (%s): its worker %s %s", member.Rank, member.Host, name, gap))
			}
		}
	}
	for _, w := range counted {
		if !ours[w.Name] {
			gaps = append(gaps, fmt.Sprintf("%s (%s) is none of this job's workers", w.Name, w.Address))
		}
	}
	return missing(gaps)
}

func missing(gaps []string) error {
	if len(gaps) == 0 {
		return nil
	}
	return errors.New(prose.List(gaps, mostGaps, "; "))
}

// gapOf describes what is wrong with an expected worker. It returns an empty string if nothing is.
func gapOf(want worker, counted []worker) string {
	at := slices.IndexFunc(counted, func(w worker) bool { return w.Name == want.Name })
	if at < 0 {
		return "is not among the scheduler's workers"
	}
	has := counted[at]
	if has.Status != "running" {
		return "is " + has.Status + ", not running"
	}
	if want.Threads > 0 && has.Threads != want.Threads {
		return fmt.Sprintf("has nthreads %d, wanted %d", has.Threads, want.Threads)
	}
	for name, amount := range want.Resources {
		if !(has.Resources[name] >= amount) {
			return fmt.Sprintf("has %s %g, wanted %g", name, has.Resources[name], amount)
		}
	}
	return ""
}

// workersOf parses the scheduler's response to "identity", sorted by name.
func workersOf(answer []byte) ([]worker, error) {
	var workers []worker
	var kind any
	listed := false
	err := eachEntry(answer, func(key string, value []byte) error {
		switch key {
		case "type":
			kind = scalar(value)
		case "workers":
			listed = true
			return eachEntry(value, func(address string, value []byte) error {
				w, err := workerOf(address, value)
				workers = append(workers, w)
				return err
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if kind != "Scheduler" || !listed {
		return nil, errors.New("its identity is not that of a scheduler with workers")
	}
	slices.SortFunc(workers, func(a, b worker) int { return strings.Compare(a.Name+a.Address, b.Name+b.Address) })
	return workers, nil
}

// workerOf parses one worker of the response.
func workerOf(address string, said []byte) (worker, error) {
	w := worker{Address: address, Resources: map[string]float64{}}
	err := eachEntry(said, func(key string, value []byte) error {
		switch key {
		case "name":
			w.Name = fmt.Sprint(scalar(value)) // a number if it was not named
		case "status":
			w.Status, _ = scalar(value).(string)
		case "nthreads":
			w.Threads = int(number(value))
		case "resources":
			return eachEntry(value, func(name string, value []byte) error {
				w.Resources[name] = number(value)
				return nil
			})
		}
		return nil
	})
	return w, err
}

// eachEntry calls take for each value of a map whose key is a text, with the bytes from the value
// on.
func eachEntry(message []byte, take func(key string, value []byte) error) error {
	n, rest, err := msgp.ReadMapHeaderBytes(message)
	for ; err == nil && n > 0; n-- {
		key, named := "", msgp.NextType(rest) == msgp.StrType
		if named {
			key, rest, err = msgp.ReadStringBytes(rest)
		} else {
			rest, err = msgp.Skip(rest)
		}
		if err != nil {
			break
		}
		value := rest
		if rest, err = msgp.Skip(value); err == nil && named {
			err = take(key, value)
		}
	}
	return err
}

// scalar returns a text or a number of a response, or nil for any other value, which may be large.
func scalar(value []byte) any {
	switch msgp.NextType(value) {
	case msgp.StrType, msgp.IntType, msgp.UintType, msgp.Float32Type, msgp.Float64Type:
		read, _, _ := msgp.ReadIntfBytes(value)
		return read
	}
	return nil
}

// number returns a number of a response, or 0 for any other value.
func number(value []byte) float64 {
	switch n := scalar(value).(type) {
	case int64:
		return float64(n)
	case uint64:
		return float64(n)
	case float32:
		return float64(n)
	case float64:
		return n
	}
	return 0
}
