# Stops a cluster whose users are all gone. $1: the cluster's folder, $2: its pg_ctl.
#
# A user takes the shared lock on users.lock while it holds start.lock, so to find users.lock free
# while holding start.lock is to know that nobody is there and nobody is coming.
trap '' HUP INT
cd "$1" || exit 1

lock() { # FD [nowait]
  if command -v flock >/dev/null 2>&1; then
    flock ${2:+-n} "$1"
  else
    perl -e 'use Fcntl ":flock"; open(my $f, "<&=", shift) or exit 1;
             exit(flock($f, LOCK_EX | (@ARGV ? LOCK_NB : 0)) ? 0 : 1)' "$@"
  fi
}

exec 8<watcher.lock
lock 8 nowait || exit 0 # another one watches
echo $$ >watcher.pid

while sleep 2; do
  exec 9<start.lock
  lock 9
  exec 7<users.lock
  if lock 7 nowait; then
    sockets=$(sed -n 5p data/postmaster.pid 2>/dev/null)
    if [ -n "$sockets" ]; then
      "$2" -D data -m fast -w -t 30 stop 7<&- 8<&- 9<&-
      rmdir "$sockets" 2>/dev/null
    fi
    exec 8<&- # before start.lock: whoever comes next starts a watcher of its own
    exit 0
  fi
  exec 7<&- 9<&-
done
