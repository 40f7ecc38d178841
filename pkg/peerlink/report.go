package peerlink

import (
	"bytes"
	"sync"
)

// maxReport is the maximum size of a report, in bytes. It is more than an exit with its last lines
// needs; what is larger is in the run directory only.
const maxReport = 256 << 10

// ReportHandler handles a report of a worker, or of the head (node 0): a name with its content,
// which may be empty. It must not block for long, and owns the content.
type ReportHandler func(node int, name string, content []byte)

// accept handles a received report. A nil handler drops it.
func (h ReportHandler) accept(node int, report []byte) {
	name, content, is := bytes.Cut(report, []byte{'\n'})
	if h != nil && is {
		h(node, string(name), content)
	}
}

// encodeReport returns a report for [link.sendReport], or nil if it is too large.
func encodeReport(name string, content []byte) []byte {
	report := append([]byte(name+"\n"), content...)
	if len(report) > maxReport {
		return nil
	}
	return report
}

// HandleReports sets the handler of the workers' reports. It must be called before Run.
func (h *Head) HandleReports(accept ReportHandler) { h.onReport = accept }

// HandleReports sets the handler of the head's reports. It must be called before Run.
func (w *Worker) HandleReports(accept ReportHandler) { w.onReport = accept }

// SendReport sends a name and its content to all workers, including those that connect later. It
// never blocks.
func (h *Head) SendReport(name string, content []byte) {
	report := encodeReport(name, content)
	h.mu.Lock()
	h.reports = append(h.reports, report)
	h.mu.Unlock()
	for node := range h.slots {
		h.slots[node].liveLink().sendReport(report)
	}
}

// SendReport sends a name and its content to the head, at once and in the order of the calls. It
// never blocks. The report is dropped if there is no connection, or the connection ends before it
// was sent: see [WorkerHandler].
func (w *Worker) SendReport(name string, content []byte) {
	w.headSlot.liveLink().sendReport(encodeReport(name, content))
}

// reportQueue has the frames of reports that were not sent yet, because the kernel had no room.
type reportQueue struct {
	sync.Mutex
	frames [][]byte // guarded by the mutex
}

// sendReport sends a report, in parts. What the kernel has no room for is sent with the next
// frames. It does nothing if there is no connection, or no report.
func (l *link) sendReport(report []byte) {
	if l == nil || report == nil {
		return
	}
	l.reports.Lock()
	for len(report) >= maxPayload {
		l.reports.frames = append(l.reports.frames, append([]byte{frameReport}, report[:maxPayload-1]...))
		report = report[maxPayload-1:]
	}
	l.reports.frames = append(l.reports.frames, append([]byte{frameReportEnd}, report...))
	l.reports.Unlock()
	l.sendReports()
}

// sendReports sends the frames of reports for which the kernel has room.
func (l *link) sendReports() {
	q := &l.reports
	q.Lock()
	defer q.Unlock()
	for len(q.frames) > 0 && l.conn.tryWriteFrame(l.trySend, q.frames[0]...) {
		q.frames = q.frames[1:]
	}
}
