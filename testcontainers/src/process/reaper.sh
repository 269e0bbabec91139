# Ends what a test process started, and removes its folders, once that process is gone.
#
# Standard input is a pipe whose only writing end is in the test process. Lines:
#   process PID START SIGNAL    end this process, unless its start time differs: then the number was reused. QUIT is for
#                               Postgres, whose children are ended too
#   folder PATH                 remove this folder
#   container NAME ENGINE       remove this container of the engine at this address, with its volumes
#   removed NAME                this container is gone
# The only argument is the mark: an entry of the environment of processes to end that may not have been registered in time.
# End of file means that the test process is gone: by its own will, by a panic, by kill -9.

trap '' HUP INT QUIT TERM PIPE
# Files that the test process itself inherited, such as the job server of a build, are not ours to keep open.
exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-

processes=
folders=
containers=
newline='
'

while IFS= read -r line; do
    case $line in
    'process '*) processes="$processes ${line#process }$newline" ;;
    'folder '*) folders="$folders${line#folder }$newline" ;;
    'container '*) containers="$containers${line#container }$newline" ;;
    'removed '*) containers=$(printf %s "$containers" | grep -v "^${line#removed } ")$newline ;;
    esac
done

# Prints "STATE PARENT START" of process $1; nothing if there is none.
stat_of() {
    stat=
    { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null
    [ -n "$stat" ] || return 0
    set -- ${stat##*) }
    echo "$1 $2 ${20}"
}

# Succeeds while process $1 with start time $2 lives; one that nobody waited for is dead.
lives() {
    set -- "$2" $(stat_of "$1")
    [ $# -eq 4 ] && [ "$4" = "$1" ] && [ "$2" != Z ] && [ "$2" != X ]
}

# Prints "PID START" of each child of process $1.
children_of() {
    for entry in /proc/[0-9]*; do
        set -- "$1" $(stat_of "${entry#/proc/}")
        [ $# -eq 4 ] && [ "$3" = "$1" ] && echo "${entry#/proc/} $4"
    done
}

# Ends the processes that carry the mark. The number of a process that ended a moment ago is not given to another so soon.
end_marked() {
    for environment in $(grep -lzxF -e "$1" /proc/[0-9]*/environ); do
        pid=${environment#/proc/}
        kill -s KILL "${pid%/environ}"
    done
}
end_marked "$1"

# First the signal that was asked for; a stopped process hears it once it is continued.
victims=
while read -r pid start signal; do
    [ -n "$pid" ] && lives "$pid" "$start" || continue
    children=
    [ "$signal" = QUIT ] && children=$(children_of "$pid")
    victims="$victims$pid $start$newline$children$newline"
    kill -s "$signal" "$pid"
    kill -s CONT "$pid"
    while read -r child _; do
        [ -n "$child" ] && kill -s CONT "$child"
    done <<CHILDREN
$children
CHILDREN
done <<PROCESSES
$processes
PROCESSES

any_lives() {
    while read -r pid start; do
        [ -n "$pid" ] && lives "$pid" "$start" && return 0
    done <<VICTIMS
$victims
VICTIMS
    return 1
}

# Then, after five seconds at most, force.
rounds=100
while [ $rounds -gt 0 ] && any_lives; do
    rounds=$((rounds - 1))
    sleep 0.05
done
while read -r pid start; do
    [ -n "$pid" ] && lives "$pid" "$start" && kill -s KILL "$pid"
done <<VICTIMS
$victims
VICTIMS
rounds=100
while [ $rounds -gt 0 ] && any_lives; do
    rounds=$((rounds - 1))
    sleep 0.05
done

# Once more: one that was being started has its environment by now.
end_marked "$1"

# Removes each container on standard input, and prints those that were not there to be removed.
remove_containers() {
    while read -r name engine; do
        [ -n "$name" ] || continue
        # The client prints the name of what it has removed. That there is nothing to remove is no failure to some versions.
        removed=$(timeout 20 docker --host "$engine" rm --force --volumes "$name" </dev/null)
        [ "$removed" = "$name" ] || echo "$name $engine"
    done
}

# The engine may have been asked for a container just before the test process went, and create it only now. Names are
# unique, so what was removed once does not come again.
rounds=50
while containers=$(printf '%s\n' "$containers" | remove_containers) && [ -n "$containers" ] && [ $rounds -gt 0 ]; do
    rounds=$((rounds - 1))
    sleep 0.2
done

# A postmaster that was killed leaves a segment of shared memory; its lock file, line 7, names it.
while IFS= read -r folder; do
    case $folder in
    */levada-*)
        for lock in "$folder/data/postmaster.pid" "$folder/disk/data/postmaster.pid"; do
            [ -f "$lock" ] || continue
            segment=$(sed -n '7s/^ *[0-9]* *\([0-9]*\).*$/\1/p' "$lock")
            [ -n "$segment" ] && ipcrm -m "$segment"
        done
        # A disk of its own, if it has one.
        umount -l "$folder/disk"
        rm -rf -- "$folder"
        ;;
    esac
done <<FOLDERS
$folders
FOLDERS
