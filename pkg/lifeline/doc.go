// Package lifeline is the connection of each worker to the head: beats, and "look at the directory
// now". It carries no state. A death is seen at once, for the kernel of a daemon that ends closes
// its connection, and a lost host when its beats stop.
//
// Both sides prove that they know the run's key, with the Noise protocol NNpsk0. Everything after
// that is encrypted and authenticated with keys that are new for each connection, and so are the
// streams beside it (see Call). A user on the network path can end a connection, which is a lost
// link, and can neither read nor change what is sent over it.
package lifeline
