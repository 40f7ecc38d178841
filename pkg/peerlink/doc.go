// Package peerlink implements the peer link of each worker to the head. The link carries heartbeats,
// notifications to poll the run directory, and what a worker must report even if it cannot write in
// the run directory. The death of a daemon is detected at once, because the kernel closes its
// connection. The loss of a host is detected when its heartbeats stop.
//
// Both sides prove that they know the run's key, with the Noise protocol NNpsk0. Everything after
// that is encrypted and authenticated with keys that are new for each connection. The same holds
// for the additional streams (see [DialStream]). A user on the network path can end a connection,
// which is a lost link, but can neither read nor change the data on it.
package peerlink
