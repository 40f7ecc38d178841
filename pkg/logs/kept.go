package logs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Kept are the logs of a framework's own that were brought from its nodes into a run's
// directory.
type Kept struct {
	Run *signal.Dir
	Of  string // the framework's name
}

// keptFolder has those of one service of a node.
type keptFolder struct {
	*signal.Folder
	name string
	rank int
}

// looksAtOnce is how many nodes' files are looked at at once: a share takes a moment for
// each, and there may be hundreds a node.
const looksAtOnce = 16

// rankOf returns the rank of the node whose logs a directory in signal.Logs has; false
// where it has none, or those of another framework.
func (k Kept) rankOf(name string) (int, bool) {
	stem, isDir := strings.CutSuffix(name, ".d")
	what, rank, ok := signal.ParseLogName(stem + ".log")
	return max(rank, 0), ok && isDir && strings.HasPrefix(what, k.Of+"-")
}

// folders lists those of the nodes that are wanted.
func (k Kept) folders(ctx context.Context, wanted func(rank int) bool) (found []keptFolder, err error) {
	all, err := k.Run.Reader().Folder(ctx, signal.Logs)
	if err != nil {
		return nil, err
	}
	for _, name := range all.Names {
		rank, ok := k.rankOf(name)
		if !ok || !wanted(rank) {
			continue
		}
		folder, err := k.Run.Reader().Folder(ctx, signal.Logs+"/"+name)
		if err != nil {
			return nil, err
		}
		found = append(found, keptFolder{folder, name, rank})
	}
	return found, nil
}

// Nodes writes, a node a line, how many files it has, and of what size. size is the number of the run's nodes. It
// returns how many nodes have any; its errors are the share's and the writer's.
func (k Kept) Nodes(ctx context.Context, to io.Writer, size int) (int, error) {
	folders, err := k.folders(ctx, func(int) bool { return true })
	if err != nil {
		return 0, err
	}
	hosts, err := k.Run.Reader().Hosts(ctx, size)
	if err != nil {
		return 0, err
	}
	facts := make([]map[string]signal.Facts, len(folders))
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	for i, folder := range folders {
		looks.Go(func() (err error) {
			facts[i], err = folder.Files(ctx)
			return err
		})
	}
	if err := looks.Wait(); err != nil {
		return 0, err
	}
	type sum struct{ files, bytes int }
	sums := make(map[int]sum)
	for i, folder := range folders {
		of := sums[folder.rank]
		for _, file := range facts[i] {
			of = sum{of.files + 1, of.bytes + int(file.Size)}
		}
		if of.files > 0 {
			sums[folder.rank] = of
		}
	}
	var rows [][]string
	for _, rank := range slices.Sorted(maps.Keys(sums)) {
		node := fmt.Sprintf("rank %d", rank)
		if host := hosts[rank]; host != "" {
			node += " (" + prose.Line(host, mostName) + ")"
		}
		files := sums[rank].files
		rows = append(rows, []string{node, fmt.Sprintf("%d %s", files, prose.Noun(files, "file")), prose.Size(uint64(sums[rank].bytes))})
	}
	return len(rows), aligned(to, rows)
}

// Files writes, a file a line, of what size those of a node are, and when they were last written to, the latest
// last. It returns how many there are; its errors are the share's and the writer's.
func (k Kept) Files(ctx context.Context, to io.Writer, rank int) (int, error) {
	folders, err := k.folders(ctx, func(of int) bool { return of == rank })
	if err != nil {
		return 0, err
	}
	type file struct {
		name string
		signal.Facts
	}
	var files []file
	for _, folder := range folders {
		facts, err := folder.Files(ctx)
		if err != nil {
			return 0, err
		}
		for name, of := range facts {
			files = append(files, file{name, of})
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.Written.Compare(b.Written), cmp.Compare(a.name, b.name)) })
	var rows [][]string
	for _, file := range files {
		rows = append(rows, []string{prose.Size(uint64(file.Size)), file.Written.Format("2006-01-02 15:04:05"), prose.Line(file.name, mostName)})
	}
	return len(rows), aligned(to, rows)
}

// File means the log of a node that has that name, or else the only one that begins so, once there is one. Where
// several begin so its error is a *WordError. Of two services on the node that have a log of that name each, both
// are meant.
func (k Kept) File(rank int, name string) Meant {
	chosen := ""
	return func(ctx context.Context) (logs []Log, err error) {
		folders, err := k.folders(ctx, func(of int) bool { return of == rank })
		if err != nil {
			return nil, err
		}
		var names []string
		for _, folder := range folders {
			names = append(names, folder.Names...)
		}
		if chosen == "" {
			if chosen, err = choose(names, name); chosen == "" {
				return nil, err
			}
		}
		for _, folder := range folders {
			if slices.Contains(folder.Names, chosen) {
				logs = append(logs, Log{name: chosen, in: folder.Folder, id: folder.name + "/" + chosen})
			}
		}
		return logs, nil
	}
}

// mostMeant is how many names are shown among which to choose.
const mostMeant = 20

// choose returns the name that a word means: it itself, or the only one that begins so.
func choose(names []string, word string) (string, error) {
	if slices.Contains(names, word) {
		return word, nil
	}
	names = slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(name string) bool { return !strings.HasPrefix(name, word) })
	switch names = slices.Compact(names); len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	for i, name := range names {
		names[i] = prose.Line(name, mostName)
	}
	return "", &WordError{fmt.Sprintf("cannot tell which log %s is: give more of its name, which may be %s", prose.Line(word, mostName), prose.List(names, mostMeant, ", "))}
}

// aligned writes rows so that their columns stand below each other.
func aligned(to io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}
