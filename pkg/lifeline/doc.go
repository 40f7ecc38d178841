// Package lifeline is the connection of each worker to the head: beats, and "look at the directory now". It carries no
// state. A death is seen at once, for the kernel of a daemon that ends closes its connection, and a lost host when its
// beats stop.
//
// Who connects proves that it knows the attempt's nonce, and so does the head. Nothing after that is signed: the
// lifeline keeps strangers out, not someone who can write into other people's connections.
package lifeline
