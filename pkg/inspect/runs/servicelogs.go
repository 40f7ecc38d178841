package runs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// ServiceLogs are the logs of a framework that were copied from the nodes into a run directory.
type ServiceLogs struct {
	RunDir        *signal.Dir
	FrameworkName string // the framework's name
}

// serviceFolder is the directory with the logs of one service of a node.
type serviceFolder struct {
	*signal.DirSnapshot
	dirName   string
	nodeIndex int
}

// parseNodeIndex returns the index of the node whose logs are in a directory of signal.LogsDir. It
// returns false if the directory has no logs of this framework.
func (k ServiceLogs) parseNodeIndex(name string) (int, bool) {
	stem, isDir := strings.CutSuffix(name, ".d")
	what, node, ok := signal.ParseLogName(stem + ".log")
	return max(node, 0), ok && isDir && strings.HasPrefix(what, k.FrameworkName+"-")
}

// allNodes selects the directories of all nodes.
const allNodes = -1

// listFolders lists the directories of a node, or of allNodes.
func (k ServiceLogs) listFolders(ctx context.Context, of int) (found []serviceFolder, err error) {
	all, err := k.RunDir.NewReader().ListDir(ctx, signal.LogsDir)
	if err != nil {
		return nil, err
	}
	for _, name := range all.Names {
		node, ok := k.parseNodeIndex(name)
		if !ok || of != allNodes && node != of {
			continue
		}
		folder, err := k.RunDir.NewReader().ListDir(ctx, signal.LogsDir+"/"+name)
		if err != nil {
			return nil, err
		}
		found = append(found, serviceFolder{folder, name, node})
	}
	return found, nil
}

// listFiles returns the attributes of the files in each directory. It queries several directories at a
// time, because each query of a shared file system takes a moment.
func listFiles(ctx context.Context, folders []serviceFolder) ([]map[string]signal.FileAttributes, error) {
	files := make([]map[string]signal.FileAttributes, len(folders))
	var queries errgroup.Group
	queries.SetLimit(2 * maxConcurrentReads)
	for i, folder := range folders {
		queries.Go(func() (err error) {
			files[i], err = folder.ListFiles(ctx)
			return err
		})
	}
	return files, queries.Wait()
}

// WriteNodes writes the number and total size of the files of each node, one node per line. size is
// the number of nodes of the run. It returns the number of nodes that have any files, or an error
// of the file system or of the writer.
func (k ServiceLogs) WriteNodes(ctx context.Context, to io.Writer, size int) (int, error) {
	folders, err := k.listFolders(ctx, allNodes)
	if err != nil {
		return 0, err
	}
	hosts, err := k.RunDir.NewReader().NodeHosts(ctx, size)
	if err != nil {
		return 0, err
	}
	files, err := listFiles(ctx, folders)
	if err != nil {
		return 0, err
	}
	type sum struct{ files, bytes int }
	sums := make(map[int]sum)
	for i, folder := range folders {
		for _, file := range files[i] {
			of := sums[folder.nodeIndex]
			sums[folder.nodeIndex] = sum{of.files + 1, of.bytes + int(file.Size)}
		}
	}
	var rows [][]string
	for _, node := range slices.Sorted(maps.Keys(sums)) {
		label := launcher.NodeLabel(node, textutil.SingleLine(hosts[node], maxNameLength))
		count, size := sums[node].files, textutil.FormatSize(uint64(sums[node].bytes))
		rows = append(rows, []string{label, fmt.Sprintf("%d %s", count, textutil.PluralForm(count, "file")), size})
	}
	return len(rows), writeAligned(to, rows)
}

// WriteFiles writes the size and modification time of each file of a node, one file per line, the
// latest last. It returns the number of files, or an error of the file system or of the writer.
func (k ServiceLogs) WriteFiles(ctx context.Context, to io.Writer, node int) (int, error) {
	folders, err := k.listFolders(ctx, node)
	if err != nil {
		return 0, err
	}
	listed, err := listFiles(ctx, folders)
	if err != nil {
		return 0, err
	}
	type file struct {
		name string
		signal.FileAttributes
	}
	var files []file
	for _, folder := range listed {
		for name, of := range folder {
			files = append(files, file{name, of})
		}
	}
	slices.SortFunc(files, func(a, b file) int {
		return cmp.Or(a.ModTime.Compare(b.ModTime), cmp.Compare(a.name, b.name))
	})
	var rows [][]string
	for _, file := range files {
		size, at := textutil.FormatSize(uint64(file.Size)), file.ModTime.Format(time.DateTime)
		rows = append(rows, []string{size, at, textutil.SingleLine(file.name, maxNameLength)})
	}
	return len(rows), writeAligned(to, rows)
}

// SelectFile selects the log of a node with the given name, or otherwise the only one with that
// prefix, once it exists. If several have the prefix, the error is a *SelectionError. If two
// services of the node have a log with that name, both are selected.
func (k ServiceLogs) SelectFile(node int, name string) Selector {
	chosen := ""
	return func(ctx context.Context) (logs []Log, err error) {
		folders, err := k.listFolders(ctx, node)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, folder := range folders {
			names = append(names, folder.Names...)
		}
		if chosen == "" {
			if chosen, err = chooseName(names, name); chosen == "" {
				return nil, err
			}
		}
		for _, folder := range folders {
			if slices.Contains(folder.Names, chosen) {
				logs = append(logs, Log{name: chosen, folder: folder.DirSnapshot, id: folder.dirName + "/" + chosen})
			}
		}
		return logs, nil
	}
}

// maxAmbiguousNames is the maximum number of names in an error about an ambiguous word.
const maxAmbiguousNames = 20

// chooseName returns the name that equals word, or the only one with that prefix.
func chooseName(names []string, word string) (string, error) {
	if slices.Contains(names, word) {
		return word, nil
	}
	names = slices.Compact(slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(name string) bool {
		return !strings.HasPrefix(name, word)
	}))
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	for i, name := range names {
		names[i] = textutil.SingleLine(name, maxNameLength)
	}
	return "", &SelectionError{fmt.Sprintf(
		"cannot select a log by %s: it matches several; give a longer part of one of these names: %s",
		textutil.SingleLine(word, maxNameLength), textutil.JoinLimited(names, maxAmbiguousNames, ", "))}
}

// writeAligned writes rows with aligned columns, without spaces at the ends of lines.
func writeAligned(to io.Writer, rows [][]string) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // to a strings.Builder
	}
	_ = table.Flush()
	lines := strings.Split(b.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	_, err := io.WriteString(to, strings.Join(lines, "\n"))
	return err
}
