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

// AcceptReport makes a report that a member has sent to the head appear in the listings of NodesDir
// at once. It returns an error unless the name and the content are those of the member's node.
func (d *Dir) AcceptReport(member int, name string, content []byte) error {
	node := record.NodeOfMember(member, d.size)
	writer, _, _ := strings.Cut(name, ".")
	isOwn := writer == memberText(member, d.size) || writer == memberText(node, d.size)
	return d.accept(NodesDir, node, name, content, isOwn)
}

// AcceptHeadReport makes a report that the head has sent to a member appear in the listings of
// ControlDir at once.
func (d *Dir) AcceptHeadReport(name string, content []byte) error {
	return d.accept(ControlDir, 0, name, content, true)
}

// accept implements [Dir.AcceptReport]. isOwn reports whether the name may be that of the node.
func (d *Dir) accept(sub string, node int, name string, content []byte, isOwn bool) error {
	var rec struct{ record.Header }
	if !isOwn || len(content) > 0 && (decodeRecord(content, d.nonce, &rec) != nil || rec.NodeIndex != node) {
		return fmt.Errorf("cannot accept a report of node %d: it has the name %q and %d bytes",
			node, name, len(content))
	}
	d.reports[sub].add(name, content)
	return nil
}
