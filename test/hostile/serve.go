package hostile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// answer is Serve's reply to a line of knobs.
type answer struct {
	Error string `json:"error,omitempty"` // why the knobs are not in effect
	Taken int    `json:"taken"`           // calls that are taken and not answered
}

// Serve mounts the folder from at the folder at, with the given knobs, and serves the mount until
// in ends; then it unmounts, even if the mount is in use. It writes a line to out when the mount
// exists. Each line of in must contain Knobs as JSON, which replace the previous ones; Serve writes
// a line to out when they are in effect.
//
// The process must not use the mount, and must exit when Serve has returned: active calls are left
// behind.
func Serve(from, at string, knobs Knobs, in io.Reader, out io.Writer) error {
	if err := knobs.check(); err != nil {
		return err
	}
	unix.Umask(0) // callers have applied their own umask
	s := &server{panel: newPanel(Knobs{})}
	fs, err := newFileSystem(from, s.panel)
	if err != nil {
		return err
	}
	if s.device, err = mount(at, fs); err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- s.device.serve() }()
	go func() { ended <- s.obey(knobs, json.NewDecoder(in), json.NewEncoder(out)) }()
	err = <-ended
	unmounted := unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(unmounted, unix.EINVAL) {
		unmounted = nil // another process has unmounted it
	}
	return errors.Join(err, unmounted)
}

type server struct {
	panel  *panel
	device *device
}

// obey changes the knobs as requested, until in ends.
func (s *server) obey(knobs Knobs, in *json.Decoder, out *json.Encoder) error {
	for {
		said := answer{}
		if err := knobs.check(); err != nil {
			said.Error = err.Error()
		} else {
			s.turn(knobs)
		}
		said.Taken = s.device.unanswered()
		if err := out.Encode(said); err != nil {
			return fmt.Errorf("cannot answer: %v", err)
		}
		knobs = Knobs{}
		switch err := in.Decode(&knobs); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("cannot read knobs: %v", err)
		}
	}
}

// turn changes the knobs; they are in effect when it returns.
func (s *server) turn(knobs Knobs) {
	s.panel.set(knobs)
	if knobs.Unread {
		s.device.pause()
	} else {
		s.device.resume()
	}
}
