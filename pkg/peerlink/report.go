package peerlink

import (
	"bytes"
	"sync"
)

// maxReport is the maximum size of a report, in bytes. It is more than an exit with its last lines
// needs; what is larger is in the run directory only.
const maxReport = 256 << 10

// ReportHandler handles a report of a worker: a name with its content, which may be empty. It must
// not block for long, and owns the content.
type ReportHandler = func(node int, name string, content []byte)

// HandleReports sets the handler of reports. It must be called before Run.
func (h *Head) HandleReports(accept ReportHandler) { h.reportHandler = accept }

// acceptReport passes a received report to its handler.
func (h *Head) acceptReport(node int, report []byte) {
	name, content, is := bytes.Cut(report, []byte{'\n'})
	if h.reportHandler != nil && is {
		h.reportHandler(node, string(name), content)
	}
}

// SendReport sends a name and its content to the head, at once and in the order of the calls. It
// never blocks. The report is dropped if there is no connection, or the connection ends before it
// was sent: see [WorkerHandler].
func (w *Worker) SendReport(name string, content []byte) {
	report := append([]byte(name+"\n"), content...)
	if len(report) > maxReport || w.headSlot.liveLink() == nil {
		return
	}
	w.reports.add(report)
	w.reports.send(w.headSlot.liveLink())
}

// reportQueue has the frames of reports that were not sent yet, because the kernel had no room. They
// are sent with the heartbeats then.
type reportQueue struct {
	mu     sync.Mutex
	frames [][]byte // guarded by mu
}

// add adds the frames of a report.
func (q *reportQueue) add(report []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(report) >= maxPayload {
		q.frames = append(q.frames, append([]byte{frameReport}, report[:maxPayload-1]...))
		report = report[maxPayload-1:]
	}
	q.frames = append(q.frames, append([]byte{frameReportEnd}, report...))
}

// clear drops all frames, because they belong to an earlier connection.
func (q *reportQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.frames = nil
}

// send sends the frames for which the kernel has room. Without a connection it keeps them.
func (q *reportQueue) send(l *link) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.frames) > 0 && l != nil && l.sendFrame(q.frames[0]...) {
		q.frames = q.frames[1:]
	}
}
