package dask

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"github.com/bringupd/bringupd/pkg/framework"
)

// workerInfo is an expected worker, or one as listed by the scheduler.
type workerInfo struct {
	Name      string
	Address   string
	Status    string             // as listed: "running" if it gets work
	Threads   int                // as expected: 0 if Dask decides
	Resources map[string]float64 // as expected: the minimum of each
}

// expectedWorker returns the worker that Dask starts with these flags.
func expectedWorker(name string, flags framework.Arguments) workerInfo {
	want := workerInfo{Name: name, Resources: map[string]float64{}}
	threads, _ := flags.LastValue("--nthreads")
	want.Threads, _ = strconv.Atoi(threads) // Dask reports invalid values
	resources, _ := flags.LastValue("--resources")
	for pair := range strings.FieldsSeq(strings.ReplaceAll(resources, ",", " ")) {
		name, text, _ := strings.Cut(pair, "=")
		if amount, err := strconv.ParseFloat(text, 64); err == nil {
			want.Resources[name] = amount
		}
	}
	return want
}

// compareMembers returns nil if all workers of the members are listed, and no others. Otherwise the
// error names the missing workers, in the order of the nodes, and unexpected ones last. Each node
// has verified the properties of its own workers.
func compareMembers(attempt string, members []framework.Member, perNode int, counted []workerInfo) error {
	var gaps []string
	known := make(map[string]bool)
	for _, member := range members {
		for _, name := range workerNames(framework.NodeName(attempt, member.NodeIndex), perNode) {
			known[name] = true
			if gap := workerGap(workerInfo{Name: name}, counted); gap != "" {
				gaps = append(gaps, fmt.Sprintf("node %d (%s): its worker %s %s", member.NodeIndex,
					member.Host, name, gap))
			}
		}
	}
	for _, w := range counted {
		if !known[w.Name] {
			gaps = append(gaps, fmt.Sprintf("%s (%s) is not a worker of this job", w.Name, w.Address))
		}
	}
	return framework.GapsError(gaps)
}

// workerGap describes what is wrong with an expected worker. It returns an empty string if nothing
// is.
func workerGap(want workerInfo, counted []workerInfo) string {
	at := slices.IndexFunc(counted, func(w workerInfo) bool { return w.Name == want.Name })
	if at < 0 {
		return "is not in the scheduler's list of workers"
	}
	has := counted[at]
	if has.Status != "running" {
		return "is " + has.Status + ", not running"
	}
	if want.Threads > 0 && has.Threads != want.Threads {
		return fmt.Sprintf("has nthreads %d, expected %d", has.Threads, want.Threads)
	}
	return framework.DescribeShortage(has.Resources, want.Resources)
}

// parseWorkers parses the scheduler's response to "identity", sorted by name.
func parseWorkers(answer []byte) ([]workerInfo, error) {
	var workers []workerInfo
	var kind any
	listed := false
	err := forEachEntry(answer, func(key string, value []byte) error {
		switch key {
		case "type":
			kind = scalarValue(value)
		case "workers":
			listed = true
			return forEachEntry(value, func(address string, value []byte) error {
				w, err := parseWorker(address, value)
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
		return nil, errors.New("its identity is not that of a Dask scheduler")
	}
	slices.SortFunc(workers, func(a, b workerInfo) int { return strings.Compare(a.Name+a.Address, b.Name+b.Address) })
	return workers, nil
}

func parseWorker(address string, data []byte) (workerInfo, error) {
	w := workerInfo{Address: address, Resources: map[string]float64{}}
	err := forEachEntry(data, func(key string, value []byte) error {
		switch key {
		case "name":
			w.Name = fmt.Sprint(scalarValue(value)) // a number if it was not named
		case "status":
			w.Status, _ = scalarValue(value).(string)
		case "nthreads":
			w.Threads = int(numberValue(value))
		case "resources":
			return forEachEntry(value, func(name string, value []byte) error {
				w.Resources[name] = numberValue(value)
				return nil
			})
		}
		return nil
	})
	return w, err
}

// forEachEntry calls take for each value of a map whose key is a text, with the bytes from the
// value on.
func forEachEntry(message []byte, take func(key string, value []byte) error) error {
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

// scalarValue returns a text or a number of a response, or nil for any other value, which may be
// large.
func scalarValue(value []byte) any {
	switch msgp.NextType(value) {
	case msgp.StrType, msgp.IntType, msgp.UintType, msgp.Float32Type, msgp.Float64Type:
		read, _, _ := msgp.ReadIntfBytes(value)
		return read
	}
	return nil
}

// numberValue returns a number of a response, or 0 for any other value.
func numberValue(value []byte) float64 {
	switch n := scalarValue(value).(type) {
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
