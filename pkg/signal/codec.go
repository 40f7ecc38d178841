package signal

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// encodeRecord fills in the record's header and returns the record in JSON, as one line.
func (d *Dir) encodeRecord(rec record.Record) ([]byte, error) {
	h := rec.RecordHeader()
	*h = record.Header{
		Version: record.VersionOf(rec), Nonce: d.nonce, Host: d.host, WrittenAt: time.Now(),
		NodeIndex: record.NodeOfMember(d.nodeIndex, d.size),
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a record of node %d: %v", d.nodeIndex, err)
	}
	if len(data) >= maxRecordSize {
		return nil, fmt.Errorf("cannot publish a record of %d bytes: at most %d are accepted",
			len(data), maxRecordSize-1)
	}
	return append(data, '\n'), nil
}

// decodeRecord parses a record. The error is errAbsent for a truncated record, because it may
// become complete, and for a record of another attempt. It is a [*record.VersionError] for a record
// of another version; rec then has the fields that both versions have. Otherwise rec is only changed
// if there is no error.
func decodeRecord(data []byte, nonce string, rec record.Record) error {
	if len(data) == 0 || data[len(data)-1] != '\n' {
		return errAbsent
	}
	// The error of an invalid time quotes all of it, and becomes part of records.
	const unread = "cannot read a record: %.200v"
	var h record.Header
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf(unread, err)
	}
	switch supported := record.VersionOf(rec); {
	case h.Version < 1 || h.Nonce == "":
		return errors.New("cannot read a record: it has no header")
	case h.Version != supported:
		_ = json.Unmarshal(data, rec)
		return &record.VersionError{Version: h.Version, Supported: supported}
	case nonce != "" && h.Nonce != nonce:
		return errAbsent
	}
	if err := json.Unmarshal(data, rec); err != nil {
		return fmt.Errorf(unread, err)
	}
	return nil
}
