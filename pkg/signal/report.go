package signal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// EncodeReport returns the content of a report of this node, which is a record, or a mark without
// content if rec is nil.
func (d *Dir) EncodeReport(rec record.Record) ([]byte, error) {
	if rec == nil {
		return nil, nil
	}
	return d.encodeRecord(rec)
}

// WriteReport publishes a report of this node in NodesDir. It may be called again after an error,
// with the same content: then it replaces nothing that the earlier call has published nevertheless.
func (d *Dir) WriteReport(ctx context.Context, name string, content []byte, durable, again bool) error {
	switch {
	case len(content) == 0:
		return d.WriteMark(ctx, NodesDir, name)
	case !again:
		return d.writeData(ctx, NodesDir, name, content, durable, d.access.publishFile)
	}
	err := d.writeData(ctx, NodesDir, name, content, durable, d.access.publishFirst)
	if errors.Is(err, ErrAlreadyPublished) {
		return nil
	}
	return err
}

// AcceptReport makes a report that a member has sent appear in the listings of NodesDir at once. It
// returns an error unless the name and the content are those of the member's node.
func (d *Dir) AcceptReport(member int, name string, content []byte) error {
	node := record.NodeOfMember(member, d.size)
	writer, _, _ := strings.Cut(name, ".")
	isOwn := writer == memberText(member, d.size) || writer == memberText(node, d.size)
	var rec struct{ record.Header }
	if !isOwn || len(content) > 0 && (decodeRecord(content, d.nonce, &rec) != nil || rec.NodeIndex != node) {
		return fmt.Errorf("cannot accept a report of node %d: it has the name %q and %d bytes", node, name, len(content))
	}
	d.reports.Add(name, content)
	return nil
}

// reportedContent returns the content of a name that was reported, and that no listing has shown yet.
func (d *Dir) reportedContent(sub, name string) ([]byte, bool) {
	if sub != NodesDir {
		return nil, false
	}
	return d.reports.Content(name)
}
